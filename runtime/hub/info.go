package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const maxConfig = 16 << 20 // bytes of JSON

// Info is what can be said of a model. What is unknown is empty.
type Info struct {
	Model        string   `json:"model"`
	Revision     string   `json:"revision,omitempty"` // branch or tag
	Commit       string   `json:"commit,omitempty"`
	Path         string   `json:"path,omitempty"` // where it lies, if it is here
	Downloaded   bool     `json:"downloaded"`     // whether all of it is here
	Bytes        int64    `json:"bytes"`          // on the disk; of one that is not here, to be downloaded
	Type         string   `json:"type,omitempty"`
	Quantization string   `json:"quantization,omitempty"`
	Context      int      `json:"context_tokens,omitempty"`
	Licence      string   `json:"licence,omitempty"`
	Files        []string `json:"files,omitempty"`
}

// List describes the models in the cache, by name. A revision is main where there is one.
func (s Settings) List() ([]Info, error) {
	entries, err := os.ReadDir(s.Cache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the folder for models cannot be read: %w", err)
	}
	var list []Info
	for _, e := range entries {
		if model, ok := modelOfFolder(e.Name()); ok && e.IsDir() {
			list = append(list, s.describe(model, ""))
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(strings.ToLower(a.Model), strings.ToLower(b.Model)) })
	return list, nil
}

// knownNames lists aliases, what they stand for, and the models in the cache.
func (s Settings) knownNames() []string {
	names := AliasNames()
	for _, model := range aliases {
		names = append(names, model)
	}
	entries, _ := os.ReadDir(s.Cache)
	for _, e := range entries {
		if model, ok := modelOfFolder(e.Name()); ok {
			names = append(names, model)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Cached describes a model in the cache; without a revision, main or what there is. The error wraps ErrNotCached.
func (s Settings) Cached(model, revision string) (Info, error) {
	if revision != "" {
		if err := checkRevision(revision); err != nil {
			return Info{}, err
		}
	}
	info := s.describe(model, revision)
	if info.Commit == "" {
		return info, fmt.Errorf("%w: there is no %s in %s", ErrNotCached, model, s.Cache)
	}
	return info, nil
}

func (s Settings) describe(model, revision string) Info {
	repo := filepath.Join(s.Cache, repoFolder(model))
	info := Info{Model: model, Bytes: diskUse(repo)}
	info.Revision, info.Commit = s.present(model, revision)
	if info.Commit == "" {
		return info
	}
	folder := filepath.Join(repo, "snapshots", info.Commit)
	info.Path = modelPath(folder, "")
	info.Downloaded = whole(info.Path) == nil || info.Path == folder && len(ggufFiles(folder)) > 0
	if text, err := readLimited(filepath.Join(folder, configName), maxConfig); err == nil {
		info.readConfig(text)
	} else if len(ggufFiles(folder)) > 0 {
		info.Type = "gguf"
	}
	if text, err := readLimited(filepath.Join(folder, "README.md"), maxConfig); err == nil {
		info.Licence = cardLicence(string(text))
	}
	info.Files = filesBelow(folder)
	return info
}

// present returns the revision to describe: the one that is asked for, main, or the newest snapshot.
func (s Settings) present(model, revision string) (name, commit string) {
	snapshots := filepath.Join(s.Cache, repoFolder(model), "snapshots")
	name = cmp.Or(revision, DefaultRevision)
	if commit, err := s.commit(model, name); err == nil {
		if _, err := os.Stat(filepath.Join(snapshots, commit)); err == nil {
			return name, commit
		}
	}
	if revision != "" {
		return revision, ""
	}
	var newest time.Time
	entries, _ := os.ReadDir(snapshots)
	for _, e := range entries {
		if i, err := e.Info(); err == nil && commitHash.MatchString(e.Name()) && i.ModTime().After(newest) {
			newest, commit = i.ModTime(), e.Name()
		}
	}
	return "", commit
}

func ggufFiles(folder string) []string {
	return slices.DeleteFunc(filesBelow(folder), func(name string) bool { return !strings.EqualFold(filepath.Ext(name), ".gguf") })
}

// filesBelow lists the files of a folder whose contents are there, with slashes.
func filesBelow(folder string) (names []string) {
	_ = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if _, err := os.Stat(path); err != nil { // a link to nothing
			return nil
		}
		if relative, err := filepath.Rel(folder, path); err == nil {
			names = append(names, filepath.ToSlash(relative))
		}
		return nil
	})
	return names
}

// diskUse adds up the files below a folder, without following links.
func diskUse(folder string) (bytes int64) {
	_ = filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if i, err := e.Info(); err == nil {
				bytes += i.Size()
			}
		}
		return nil
	})
	return bytes
}

// readConfig takes what config.json says. A broken one says nothing.
func (i *Info) readConfig(text []byte) {
	type quantization struct {
		Bits   int    `json:"bits"`
		Group  int    `json:"group_size"`
		Mode   string `json:"mode"`
		Method string `json:"quant_method"`
	}
	type part struct {
		Context int    `json:"max_position_embeddings"`
		DType   string `json:"dtype"`
		Torch   string `json:"torch_dtype"`
	}
	var c struct {
		part
		Type  string        `json:"model_type"`
		Quant *quantization `json:"quantization"`
		Other *quantization `json:"quantization_config"`
		Text  part          `json:"text_config"`
	}
	if json.Unmarshal(text, &c) != nil {
		return
	}
	i.Type = printable(c.Type, 40)
	i.Context = max(cmp.Or(c.Context, c.Text.Context), 0)
	i.Quantization = printable(cmp.Or(c.DType, c.Torch, c.Text.DType, c.Text.Torch), 40)
	if q := cmp.Or(c.Quant, c.Other); q != nil {
		parts := []string{cmp.Or(q.Mode, q.Method, "affine")}
		if q.Bits > 0 {
			parts = append(parts, fmt.Sprintf("%d bit", q.Bits))
		}
		i.Quantization = printable(strings.Join(parts, " "), 40)
		if q.Group > 0 {
			i.Quantization += fmt.Sprintf(", group %d", q.Group)
		}
	}
}

// cardLicence finds the licence in the head of a model card.
func cardLicence(card string) string {
	lines := strings.Split(card, "\n")
	if strings.TrimSpace(lines[0]) != "---" {
		return ""
	}
	for _, line := range lines[1:] {
		if strings.TrimSpace(line) == "---" {
			break
		}
		if licence, ok := strings.CutPrefix(line, "license:"); ok {
			return printable(strings.Trim(strings.TrimSpace(licence), `"'`), 60)
		}
	}
	return ""
}

// Look describes a model on the Hub without downloading it.
func Look(ctx context.Context, s Settings, r Reference, revision string) (Info, error) {
	info := Info{Model: r.Model, Revision: cmp.Or(revision, DefaultRevision)}
	request := Request{Reference: r, Revision: info.Revision, Parallel: 1}
	if err := request.check(s); err != nil {
		return info, err
	}
	c, err := newClient(s, 30*time.Second, 500*time.Millisecond, 1)
	if err != nil {
		return info, err
	}
	defer c.close()
	if err := info.look(ctx, c, r); err != nil {
		return info, s.offerNames(explain(err, r.Model, info.Revision, c.base, s.Token != ""), r.Model)
	}
	return info, nil
}

func (i *Info) look(ctx context.Context, c *client, r Reference) error {
	text, err := c.getAll(ctx, c.listingAddress(i.Model, i.Revision), maxListing)
	if err != nil {
		return err
	}
	l, err := parseListing(text)
	if err != nil {
		return err
	}
	i.Commit, i.Licence = l.Commit, l.Licence
	fetch := func(name string) ([]byte, error) {
		return c.getAll(ctx, c.fileAddress(i.Model, i.Commit, name), maxIndex)
	}
	var index []byte
	var config, gguf bool
	for _, f := range l.Files {
		i.Files = append(i.Files, printable(f.Path, 200))
		gguf = gguf || strings.EqualFold(filepath.Ext(f.Path), ".gguf")
		config = config || f.Path == configName
		if f.Path == indexName {
			if index, err = fetch(indexName); err != nil {
				return err
			}
		}
	}
	if config {
		if text, err = fetch(configName); err != nil {
			return err
		}
		i.readConfig(text)
	} else if gguf {
		i.Type = "gguf"
	}
	i.Bytes = chosenBytes(selection{part: r.File}, l.Files, index)
	return nil
}

// chosenBytes is the size of what a download would fetch, or of everything where it would have to be told what.
func chosenBytes(s selection, all []file, index []byte) (sum int64) {
	chosen, err := s.first(all)
	weights, weightsErr := s.weights(all, index)
	if chosen = slices.Concat(chosen, weights); err != nil || weightsErr != nil {
		chosen = all
	}
	for _, f := range chosen {
		sum += max(f.Size, 0)
	}
	return sum
}

func joined(names []string) string { return strings.Join(names, ", ") }
