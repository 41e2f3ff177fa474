package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// The backend libraries' names in the folders of their variants.
const (
	shimFile   = "libmlxshim.so"
	nativeFile = "libmlxnative.so"
)

// manifestFile describes a variant, in its folder.
const manifestFile = "manifest.json"

// A manifest says what a bundle's variant is made of.
type manifest struct {
	Variant string         `json:"variant"`          // "native", "cpu"
	Library string         `json:"library"`          // the backend library, from the manifest's folder
	MLX     string         `json:"mlx,omitempty"`    // exact version of MLX
	Source  string         `json:"source,omitempty"` // package that MLX comes from
	Files   []manifestItem `json:"files"`            // every file but the manifest, sorted by path
}

type manifestItem struct {
	Path   string `json:"path"` // from the manifest's folder, with slashes
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// assembleMLX makes bin/lib/cpu from the built library and the unpacked wheel:
//
//	libmlxshim.so          RUNPATH $ORIGIN/mlx/lib
//	mlx/lib/libmlx.so      RPATH $ORIGIN/../../mlx_cpu.libs
//	mlx_cpu.libs/*.so.*    RPATH $ORIGIN
//	manifest.json
//
// so that the folder runs wherever it is put.
func (p *project) assembleMLX(mlx, build string) error {
	files := map[string]string{
		shimFile:            filepath.Join(build, shimFile),
		"mlx/lib/libmlx.so": filepath.Join(mlx, "mlx", "lib", "libmlx.so"),
	}
	libraries, err := filepath.Glob(filepath.Join(mlx, "mlx_cpu.libs", "*.so*"))
	if err != nil {
		return err
	}
	for _, library := range libraries {
		files["mlx_cpu.libs/"+filepath.Base(library)] = library
	}
	return p.assemble(manifest{Variant: "cpu", Library: shimFile, MLX: p.lock.MLX.Version, Source: p.lock.MLX.Name}, files)
}

// assembleNative makes bin/lib/native, which is one library.
func (p *project) assembleNative(build string) error {
	return p.assemble(manifest{Variant: "native", Library: nativeFile}, map[string]string{nativeFile: filepath.Join(build, nativeFile)})
}

// assemble makes the folder of a variant from files, sources by their path in
// it. Only what differs is copied.
func (p *project) assemble(m manifest, files map[string]string) error {
	dir := p.bin("lib", m.Variant)
	changed := 0
	for _, path := range slices.Sorted(maps.Keys(files)) {
		target := filepath.Join(dir, filepath.FromSlash(path))
		size, sum, err := hashFile(files[path])
		if err != nil {
			return err
		}
		m.Files = append(m.Files, manifestItem{path, size, sum})
		if checkHash(target, sum) == nil {
			continue
		}
		if changed++; changed == 1 {
			p.say("assembling the bundle %s", dir)
		}
		if err := placeCopy(files[path], target); err != nil {
			return err
		}
	}
	if err := removeOthers(dir, files); err != nil {
		return err
	}
	if err := checkClosure(dir, m.Library); err != nil {
		return fmt.Errorf("the bundle %s is not complete: %w", dir, err)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), append(text, '\n'), 0o644)
}

// removeOthers removes what an earlier version has left in a variant's folder.
func removeOthers(dir string, files map[string]string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if _, wanted := files[filepath.ToSlash(relative)]; wanted || relative == manifestFile {
			return nil
		}
		return os.Remove(path)
	})
}
