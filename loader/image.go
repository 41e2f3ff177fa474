package loader

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"

	"mlxcel/internal/held"
)

// The libraries of a bundle are looked at before they are loaded, because the
// system's loader answers damage with a riddle, and reading behind the end of a
// file that is cut short kills the process.

// errNoLibrary says that a file is not a library for this system at all.
var errNoLibrary = errors.New("it is not a library for this system")

// checkImages checks every library in the folder of a variant.
func (s *search) checkImages(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return s.fail(path, err, "cannot look into the bundle: %v", err)
		}
		if entry.IsDir() || !isLibrary(entry.Name()) {
			return nil
		}
		return s.checkImage(path)
	})
}

func (s *search) checkImage(path string) error {
	f, err := held.Open(path)
	if err != nil {
		return s.fail(path, err, "the library %s cannot be read: %v", path, reason(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s.fail(path, err, "the library %s cannot be read: %v", path, reason(err))
	}
	need, err := imageSize(f)
	if err != nil {
		return s.fail(path, err, "the library %s is damaged: %v", path, err)
	}
	if info.Size() < need {
		return s.fail(path, nil, "the library %s is cut short: it has %d bytes of %d", path, info.Size(), need)
	}
	return nil
}

// marker stands in a shim, followed by the version of MLX that it was built for.
const marker = "mlxshim-built-for-mlx="

// builtFor returns the MLX version that the shim at path was built for.
func (s *search) builtFor(path string) (string, error) {
	data, err := held.ReadFile(path)
	if err != nil {
		return "", s.fail(path, err, "the library %s cannot be read: %v", path, reason(err))
	}
	_, rest, found := bytes.Cut(data, []byte(marker))
	if !found {
		return "", s.fail(path, nil, "the library %s is not one of mlxcel: it does not tell which MLX it was built for", path)
	}
	version, _, _ := bytes.Cut(rest[:min(len(rest), 64)], []byte{0})
	return string(version), nil
}
