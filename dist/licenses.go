package main

import (
	"context"
	"debug/buildinfo"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenseTexts are those that no package brings along: of what is compiled into a library, or copied into its wheel.
//
//go:embed licenses
var licenseTexts embed.FS

var (
	everyMLX = []string{"fmt", "nlohmann-json", "pocketfft"}
	fortran  = []string{"lapack", "gcc-runtime-exception", "GPL-3", "LGPL-2.1"}
	onlyCUDA = []string{"cudnn-frontend", "cutlass", "cccl", "nvtx"}
)

// licensesInside are the texts of licenseTexts that a wheel lacks.
var licensesInside = map[string]map[string][]string{
	linuxTarget: {
		"mlx-cpu":     slices.Concat(everyMLX, []string{"gguflib"}, fortran),
		"mlx-cuda-13": slices.Concat(everyMLX, []string{"gguflib"}, fortran, onlyCUDA),
	},
	windowsTarget: {
		"mlx-cpu":     slices.Concat(everyMLX, []string{"openblas", "mingw-w64"}, fortran),
		"mlx-cuda-13": slices.Concat(everyMLX, onlyCUDA),
		"mlx-cuda-12": slices.Concat(everyMLX, onlyCUDA),
	},
}

// partMarks are what stands in a library that one of licensesInside is compiled into, by the name of its text.
var partMarks = map[string][]string{
	"fmt": {"3fmt3v", "fmt@@"}, "nlohmann-json": {"nlohmann"}, "pocketfft": {"pocketfft"}, "gguflib": {"gguf_append"},
	"openblas": {"openblas_"}, "lapack": {"dgetrf2"}, "gcc-runtime-exception": {"_gfortran_"}, "mingw-w64": {"Mingw-w64 runtime"},
	"cudnn-frontend": {"cudnn_frontend"}, "cutlass": {"cutlass"}, "cccl": {"thrust"}, "nvtx": {"nvtx"},
}

// checkParts checks that the texts for MLX's wheels are those of what is compiled into their libraries: by marks, which
// shows a part that is forgotten, or is no longer there after a new release of MLX.
func (a *audit) checkParts() {
	for _, c := range a.manifest.Components {
		variant, ok := strings.CutPrefix(c.Name, "mlx-")
		if !ok {
			continue
		}
		var libraries []string
		for _, name := range sortedKeys(a.files) {
			inside, there := strings.CutPrefix(name, "lib/"+strings.ReplaceAll(variant, "-", "")+"/")
			blas := variant == "cpu" && name == "lib/common/libopenblas.dll"
			if blas || there && strings.HasPrefix(inside, "mlx") && !ours(name) && (strings.HasSuffix(name, ".dll") || isSharedObject(name)) {
				libraries = append(libraries, name)
			}
		}
		for _, part := range sortedKeys(partMarks) {
			compiled := slices.ContainsFunc(libraries, func(name string) bool {
				return slices.ContainsFunc(partMarks[part], func(mark string) bool { return mentions(a.file(name), mark) })
			})
			listed := slices.Contains(c.Licenses, path.Join("licenses", c.Name, part+".txt"))
			switch {
			case compiled && !listed:
				a.problem("%s is compiled into a library of %s, and its terms are not beside it", part, c.Name)
			case listed && !compiled && c.SHA256 != "": // a build of one's own may lack parts
				a.problem("the terms of %s are there, and no library of %s contains it", part, c.Name)
			}
		}
	}
}

// isLicense matches the names of files that hold terms.
var isLicense = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|notice|patents)`)

// addWheelLicenses adds a wheel's component with its licences: those in its metadata, and of what is inside. With
// replaced, files of the wheel's own are not in the bundle, but those of another build of the same.
func (p *project) addWheelLicenses(b *bundle, name string, replaced bool) error {
	wheel := p.wheel(b.target, name)
	c := component{Name: name, Version: wheel.Version, Source: "https://pypi.org/project/" + name + "/" + wheel.Version + "/, " + wheel.File, SHA256: wheel.SHA256}
	if replaced {
		c.Version, c.Source, c.SHA256 = "", "built from source, not from the package", ""
	}
	files, err := filepath.Glob(filepath.Join(p.wheelFolder(b.target, name), "*.dist-info", "licenses", "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := b.addLicense(&c, filepath.Base(file), file); err != nil {
			return err
		}
	}
	for _, inside := range licensesInside[b.target][name] {
		text, err := licenseTexts.ReadFile("licenses/" + inside + ".txt")
		if err != nil {
			return err
		}
		at := path.Join("licenses", name, inside+".txt")
		b.texts[at] = text
		c.Licenses = append(c.Licenses, at)
	}
	if len(c.Licenses) == 0 {
		return fmt.Errorf("the package %s brings no licence: put its text into dist/licenses", wheel)
	}
	b.sources = append(b.sources, c)
	return nil
}

func (b *bundle) addLicense(c *component, name, file string) error {
	at := path.Join("licenses", c.Name, name)
	c.Licenses = append(c.Licenses, at)
	return b.add(at, file)
}

// addProgramLicenses adds the components that the programs are linked from: mlxcel, Go, and the modules.
func (p *project) addProgramLicenses(ctx context.Context, b *bundle) error {
	own := component{Name: "mlxcel", Version: b.version, Source: "this repository"}
	if err := b.addLicense(&own, "LICENSE", p.path("LICENSE")); err != nil {
		return err
	}
	root, err := p.goTool(ctx, "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	modules := map[string]string{}
	version := ""
	for at, file := range b.files {
		if strings.Contains(at, "/") {
			continue // a program lies at the top
		}
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		version = info.GoVersion
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path] = m.Version
		}
	}
	language := component{Name: "go", Version: strings.TrimPrefix(version, "go"), Source: "https://go.dev"}
	if err := b.addLicense(&language, "LICENSE", filepath.Join(strings.TrimSpace(string(root)), "LICENSE")); err != nil {
		return err
	}
	b.sources = append(b.sources, own, language)
	folders, err := p.moduleFolders(ctx)
	if err != nil {
		return err
	}
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		c := component{Name: module, Version: modules[module], Source: "https://" + module}
		entries, err := os.ReadDir(folders[module])
		if err != nil {
			return fmt.Errorf("the licence of the module %s cannot be looked for: %w", module, err)
		}
		for _, entry := range entries {
			if entry.Type().IsRegular() && isLicense.MatchString(entry.Name()) {
				if err := b.addLicense(&c, entry.Name(), filepath.Join(folders[module], entry.Name())); err != nil {
					return err
				}
			}
		}
		if len(c.Licenses) == 0 {
			return fmt.Errorf("the module %s brings no licence", module)
		}
		b.sources = append(b.sources, c)
	}
	return nil
}

// moduleFolders returns where Go keeps the modules that this one depends on.
func (p *project) moduleFolders(ctx context.Context) (map[string]string, error) {
	cmd := p.goTool(ctx, "list", "-m", "-json=Path,Dir", "all")
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	folders := map[string]string{}
	decoder := json.NewDecoder(output)
	for {
		var module struct{ Path, Dir string }
		err := decoder.Decode(&module)
		if errors.Is(err, io.EOF) {
			return folders, cmd.Wait()
		}
		if err != nil {
			return nil, errors.Join(err, cmd.Wait())
		}
		folders[module.Path] = module.Dir
	}
}
