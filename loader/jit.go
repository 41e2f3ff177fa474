package loader

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mlxcel/internal/held"
)

// jitCache returns the folder in which the kernels for a GPU that are compiled on this machine are kept: one for each
// build of the backend library and kind of GPU, as what another one has compiled would be wrong. Where it cannot be
// written, it is a temporary folder, and note says so.
func (s *search) jitCache(shim string, g GPU) (string, error) {
	data, err := held.ReadFile(shim)
	if err != nil {
		return "", s.fail(shim, err, "the library %s cannot be read: %v", shim, reason(err))
	}
	sum := sha256.Sum256(data)
	name := strings.Map(func(r rune) rune {
		if r < 128 && (r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '-'
	}, g.Name)
	last := filepath.Join("jit", hex.EncodeToString(sum[:6]), fmt.Sprintf("%s-sm%d%d", name, g.Major, g.Minor))

	base, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(base, "mlxcel", last)
		if err = writable(dir); err == nil {
			return dir, nil
		}
	}
	s.note(filepath.Join(base, "mlxcel"), "cannot be written (%v): kernels for the GPU are compiled anew at every start", err)
	return os.MkdirTemp("", "mlxcel-jit-")
}

// writable makes a folder and tries to write in it.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".try")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}
