package wine

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// evilNames are DLLs that the programs, MLX or NVIDIA's libraries load, and one of the usual names for such an attack.
var evilNames = []string{
	"mlx.dll", "mlxshim.dll", "mlxnative.dll", "libopenblas.dll", "msvcp140.dll", "vcruntime140.dll", "nvcuda.dll", "nvml.dll",
	"nvrtc64_130_0.dll", "nvrtc-builtins64_130.dll", "cublasLt64_13.dll", "cudnn64_9.dll", "version.dll", "winmm.dll", "powrprof.dll", "dbghelp.dll",
	"cryptbase.dll", "bcryptprimitives.dll",
}

const evilCode = 66

// makeEvil compiles the DLL that ends the process.
func makeEvil(t *testing.T) string {
	t.Helper()
	evil := filepath.Join(t.TempDir(), "evil.dll")
	require.NoError(t, testenv.CompileDLL(filepath.Join("testdata", "evil.c"), evil, "/entry:DllMain", "kernel32.lib"))
	return evil
}

// plant copies the DLL into a folder under each name.
func plant(t *testing.T, evil, dir string, names ...string) {
	t.Helper()
	code, err := os.ReadFile(evil)
	require.NoError(t, err)
	for _, name := range names {
		os.Remove(filepath.Join(dir, name)) // a link to the real one
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), code, 0o644))
	}
}

// Nobody's DLL is loaded from the current folder, from PATH, or from beside the model.
func TestPlantedDLLsAreIgnored(t *testing.T) {
	bundle, wine, model := testenv.WindowsBundle(t), testenv.Wine(t), testenv.Model(t)
	evil := makeEvil(t)
	current, onPath, models := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{current, onPath, models} {
		plant(t, evil, dir, evilNames...)
	}
	require.NoError(t, os.Symlink(model, filepath.Join(models, "model.gguf")))
	run := func(bundle string, args ...string) (string, int) {
		cmd := wine.Command(filepath.Join(bundle, "mlxcel.exe"), args...)
		cmd.Dir = current
		// Wine joins WINEPATH to the PATH that Windows programs see.
		cmd.Env = append(cmd.Env, "WINEPATH="+wine.Path(onPath))
		output, _ := cmd.CombinedOutput()
		return string(output), cmd.ProcessState.ExitCode()
	}
	for _, backend := range []string{"native", "mlx"} {
		output, code := run(bundle, "generate", "--backend", backend, "-n", "8", "-p", "What is the capital of France?", "-m", wine.Path(filepath.Join(models, "model.gguf")))
		require.Zero(t, code, output)
		require.Contains(t, output, "Paris")
	}
	output, code := run(bundle, "--version")
	require.Zero(t, code, output)
	output, code = run(bundle, "doctor")
	require.NotEqual(t, evilCode, code, output)
	require.Contains(t, output, "mlxnative.dll")

	// What is planted works: a program that is not careful loads it from either folder, and so do ours from the bundle.
	for _, dir := range []string{current, onPath} {
		plant(t, evil, dir, "only-"+filepath.Base(dir)+".dll")
		careless := wine.Command("rundll32.exe", "only-"+filepath.Base(dir)+".dll,x")
		careless.Dir = current
		careless.Env = append(careless.Env, "WINEPATH="+wine.Path(onPath))
		output, _ := careless.CombinedOutput()
		require.Equal(t, evilCode, careless.ProcessState.ExitCode(), string(output))
	}
	spoiled := copyBundle(t, bundle)
	plant(t, evil, filepath.Join(spoiled, "lib", "cpu"), "mlx.dll")
	_, code = run(spoiled, "generate", "--backend", "mlx", "-n", "1", "-p", "x", "-m", wine.Path(model))
	require.Equal(t, evilCode, code)
}

// copyBundle links the bundle's files into a new folder, in which single ones can be replaced by others.
func copyBundle(t *testing.T, bundle string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, filepath.WalkDir(bundle, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(bundle, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		return os.Symlink(path, target)
	}))
	// Programs look beside themselves, and a link is followed: they are copied.
	for _, name := range []string{"mlxcel.exe", "mlxcel-server.exe"} {
		code, err := os.ReadFile(filepath.Join(bundle, name))
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), code, 0o755))
	}
	return dir
}
