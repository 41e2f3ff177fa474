package wine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// A virus scanner holds files that are new. They are waited for, but not for ever.
func TestHeldFiles(t *testing.T) {
	wine, dir := testenv.Wine(t), t.TempDir()
	program, model := bundleIn(t, filepath.Join(dir, "bundle")), filepath.Join(dir, testenv.ModelFile)
	link(t, testenv.Model(t), model)
	holder := filepath.Join(dir, "hold.dll")
	require.NoError(t, testenv.CompileDLL(filepath.Join("testdata", "hold.c"), holder, "kernel32.lib"))
	hold := func(t *testing.T, path string, d time.Duration) *exec.Cmd {
		cmd := wine.Command("rundll32.exe", wine.Path(holder)+",hold", strconv.FormatInt(d.Milliseconds(), 10), wine.Path(path))
		require.NoError(t, cmd.Start())
		marker := path + ".held"
		require.Eventually(t, func() bool { return os.Remove(marker) == nil }, time.Minute, time.Millisecond)
		return cmd
	}
	lib := filepath.Join(dir, "bundle", "lib")
	for _, file := range []struct{ name, path, backend, code string }{
		{"a library", filepath.Join(lib, "native", "mlxnative.dll"), "native", "file-held"},
		{"MLX", filepath.Join(lib, "cpu", "mlx.dll"), "mlx", "file-held"},
		{"what MLX needs", filepath.Join(lib, "common", "libopenblas.dll"), "mlx", "file-held"},
		{"a model", model, "native", "model-unusable"},
	} {
		t.Run(file.name, func(t *testing.T) {
			data, err := os.ReadFile(file.path)
			require.NoError(t, err)
			replace(t, file.path, data) // a copy, since other tests may use the same file by another name
			doctor := []string{"doctor", "--backend", file.backend, "-m", wine.Path(model)}
			const short = 1500 * time.Millisecond
			scanner, start := hold(t, file.path, short), time.Now()
			out, code := run(t, wine, program, nil, doctor...)
			require.Greater(t, time.Since(start), short*9/10, "the file was not held")
			require.Zero(t, code, out)
			require.Contains(t, out, "Everything needed is there.")
			require.NoError(t, scanner.Wait())
			if file.name != "a library" && !long() {
				return
			}
			scanner = hold(t, file.path, time.Minute)
			out, _ = run(t, wine, program, nil, doctor...)
			require.Contains(t, out, "["+file.code+"] ")
			require.Contains(t, out, wine.Path(file.path))
			require.NoError(t, scanner.Process.Kill(), "it was not waited for the end")
			_ = scanner.Wait()
		})
	}
}
