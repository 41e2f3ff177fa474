package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// manifestFile describes a bundle, in its folder.
const manifestFile = "manifest.json"

// A manifest says what a bundle is made of.
type manifest struct {
	Name    string `json:"name"`    // "mlxcel"
	Version string `json:"version"` // of mlxcel
	Target  string `json:"target"`  // "windows-amd64"
	Variant string `json:"variant"` // "cpu", "cuda13", …
	MLX     string `json:"mlx"`     // exact version of MLX
	// What the system must have.
	Driver string `json:"nvidia_driver,omitempty"` // oldest NVIDIA driver, where there is a GPU to be used
	Glibc  string `json:"glibc,omitempty"`         // oldest C library of Linux
	// GPUs are the compute capabilities that MLX has code for ("8.0"; "12.0a" for this one alone). The others of the
	// same major version run it, too.
	GPUs       []string       `json:"gpu_architectures,omitempty"`
	Components []component    `json:"components"` // sorted by name
	Files      []manifestItem `json:"files"`      // every file but the manifest, sorted by path
}

// A component is a part of a bundle that has an author of its own.
type component struct {
	Name     string   `json:"name"`
	Version  string   `json:"version,omitempty"`
	Source   string   `json:"source"`           // the package or module that it is from
	SHA256   string   `json:"sha256,omitempty"` // of the package's file, hexadecimal
	Licenses []string `json:"licenses"`         // paths in the bundle
}

type manifestItem struct {
	Path   string `json:"path"` // from the manifest's folder, with slashes
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// addManifest adds manifest.json to a bundle that has everything else.
func (p *project) addManifest(b *bundle) error {
	m := manifest{Name: "mlxcel", Version: b.version, Target: b.target, Variant: b.variant, MLX: p.lock.MLX.Version}
	slices.SortFunc(b.sources, func(x, y component) int { return strings.Compare(x.Name, y.Name) })
	m.Components = b.sources
	if b.cuda != nil {
		m.Driver = b.cuda.driver
		var err error
		if m.GPUs, err = gpuArchitectures(b.files[b.mlxFile()]); err != nil {
			return err
		}
	}
	if !b.windows() {
		var err error
		if m.Glibc, err = glibcFloor(b.libraries()); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(b.files)) {
		size, sum, err := hashFile(b.files[path])
		if err != nil {
			return err
		}
		m.Files = append(m.Files, manifestItem{path, size, sum})
	}
	for path, text := range b.texts {
		m.Files = append(m.Files, manifestItem{path, int64(len(text)), hashText(text)})
	}
	slices.SortFunc(m.Files, func(x, y manifestItem) int { return strings.Compare(x.Path, y.Path) })
	text, err := m.encode()
	b.texts[manifestFile] = text
	return err
}

func (m manifest) encode() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	return append(text, '\n'), err
}

// readManifest reads the manifest of an unpacked bundle.
func readManifest(dir string) (*manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(m); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestFile, err)
	}
	return m, nil
}

// mlxFile is the path of the bundle's MLX for GPUs.
func (b *bundle) mlxFile() string {
	if b.windows() {
		return "lib/" + b.cuda.name + "/mlx.dll"
	}
	return "lib/" + b.cuda.name + "/mlx/lib/libmlx.so"
}

// libraries are the shared libraries of a bundle for Linux.
func (b *bundle) libraries() []string {
	var all []string
	for path, file := range b.files {
		if isSharedObject(path) {
			all = append(all, file)
		}
	}
	slices.Sort(all)
	return all
}

// readme is the text that people see who unpack the archive.
func (b *bundle) readme(mlx string) string {
	exe, shell, path := "", "    ./", "models/name.gguf"
	if b.windows() {
		exe, shell, path = ".exe", `    .\`, `models\name.gguf`
	}
	var s strings.Builder
	fmt.Fprintf(&s, "mlxcel %s for %s (%s), with MLX %s\n\n", b.version, b.target, b.variant, mlx)
	fmt.Fprintf(&s, "Runs language models on this machine. Nothing needs to be installed: unpack the whole archive where you like\nand start the programs there.\n\n")
	fmt.Fprintf(&s, "%smlxcel%s generate -m mlx-community/Qwen3-0.6B-4bit -p \"Hello\"\n", shell, exe)
	fmt.Fprintf(&s, "%smlxcel%s chat -m %s\n", shell, exe, path)
	fmt.Fprintf(&s, "%smlxcel-server%s -m %s\n", shell, exe, path)
	fmt.Fprintf(&s, "%smlxcel%s doctor                says whether everything needed is there, and what to do if not\n\n", shell, exe)
	if b.cuda != nil {
		fmt.Fprintf(&s, "GPUs: NVIDIA, compute capability 7.5 or more, driver %s or newer. Without one the processor computes.\n", b.cuda.driver)
	}
	if !b.windows() {
		fmt.Fprintf(&s, "Needs glibc %s and libstdc++ of GCC 12, or newer.\n", glibcMost)
	}
	fmt.Fprintf(&s, "\nlib has to stay beside the programs. licenses has the terms of every part; manifest.json lists parts and files.\n")
	text := s.String()
	if b.windows() {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}
