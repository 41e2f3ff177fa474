package driver_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/driver"
	"mlxcel/tests/testenv"
)

const question = "What is the capital of France?"

// program is the built mlxcel.
func program(t *testing.T) string {
	path := filepath.Join(testenv.Root(), "bin", "mlxcel")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is missing: run `go run ./dist build`", path)
	}
	return path
}

// gpuBundle makes a bundle that has libraries for GPUs, as far as can be seen from outside: they are those for the CPU,
// and what NVIDIA makes is something else.
func gpuBundle(t *testing.T) string {
	t.Helper()
	from, dir := testenv.Bundle(t), t.TempDir()
	copyTree := func(from, to string) {
		require.NoError(t, filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
			inside, _ := filepath.Rel(from, path)
			if err != nil || entry.IsDir() {
				return err
			}
			target := filepath.Join(to, inside)
			require.NoError(t, os.MkdirAll(filepath.Dir(target), 0o755))
			if os.Link(path, target) == nil {
				return nil
			}
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			return os.WriteFile(target, data, 0o755)
		}))
	}
	copyTree(filepath.Join(from, "native"), filepath.Join(dir, "native"))
	copyTree(filepath.Join(from, "cpu"), filepath.Join(dir, "cpu"))
	copyTree(filepath.Join(from, "cpu"), filepath.Join(dir, "cuda13"))
	library, err := os.ReadFile(driver.Build(t, "linux", driver.Working, t.TempDir()))
	require.NoError(t, err)
	for _, name := range []string{
		"nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/lib/libnvrtc-builtins.so.13.0", "nvidia/cu13/lib/libcublasLt.so.13",
		"nvidia/cu13/include/cuda_fp16.h", "mlx/include/cccl/version.h",
	} {
		path := filepath.Join(dir, "cuda13", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, library, 0o644))
	}
	return dir
}

// machine is one with a driver.
type machine struct {
	bundle, driver string
	environment    []string
}

// run runs mlxcel on it.
func (m machine) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(program(t), append(args, "--bundle", m.bundle, "-m", testenv.Model(t))...)
	cmd.Env = append(append(os.Environ(), "MLXCEL_BUNDLE=", "LD_LIBRARY_PATH="+m.driver), m.environment...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// What the driver says is wrong is told with its code, and the answer comes from the CPU.
func TestFaults(t *testing.T) {
	bundle := gpuBundle(t)
	faults := driver.Faults
	if _, err := os.Stat("/proc/driver/nvidia"); err != nil { // where there is one, it would be found
		faults = append([]driver.Fault{{Name: "missing", Code: "driver-missing", Says: "there is no NVIDIA driver on this system"}}, faults...)
	}
	for _, f := range faults {
		if f.Says == "" {
			continue // a fault on Windows only
		}
		t.Run(f.Name, func(t *testing.T) {
			m := machine{bundle, t.TempDir(), f.Environment}
			if f.Name != "missing" {
				driver.Build(t, "linux", f, m.driver)
			}
			out, errs, code := m.run(t, "doctor")
			require.Zero(t, code, errs)
			require.Contains(t, out, "  - ["+f.Code+"] ")
			require.Contains(t, out, f.Says)
			out, errs, code = m.run(t, "generate", "-n", "8", "-p", question)
			require.Zero(t, code, errs)
			require.Contains(t, out, "The capital of France is Paris")
			require.Regexp(t, `(?m)^mlxcel: computing on the CPU: [^\n]+$`, errs)
			require.Contains(t, errs, f.Says)
			_, errs, code = m.run(t, "generate", "--device", "cuda", "-p", "x")
			require.Equal(t, 1, code)
			require.Contains(t, errs, f.Says)
			require.Regexp(t, `^mlxcel: [^\n]+\n$`, errs, "one sentence")
		})
	}
}

// Where the driver works and the library finds its GPU unusable, that is told; nothing computes elsewhere behind the
// user's back.
func TestUnusable(t *testing.T) {
	m := machine{bundle: gpuBundle(t), driver: t.TempDir()}
	driver.Build(t, "linux", driver.Working, m.driver)
	out, _, code := m.run(t, "doctor")
	require.Equal(t, 1, code)
	require.Contains(t, out, "cuda:0 is Test GPU, compute capability 8.9, 8.59 GB, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
	require.Contains(t, out, "  - [device-failed] ")
	_, errs, code := m.run(t, "generate", "-p", "x")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "--device cpu")
	_, errs, code = m.run(t, "generate", "--device", "cpu", "-n", "1", "-p", question)
	require.Zero(t, code, errs)
	require.NotContains(t, errs, "computing on the CPU", "as was asked for")

	// What is compiled for the GPU goes elsewhere where the cache cannot be written.
	m.environment = []string{"XDG_CACHE_HOME=/dev/null"}
	out, _, _ = m.run(t, "doctor")
	require.Contains(t, out, "cannot be written")
	require.Regexp(t, `(?m)^kernels +.*mlxcel-jit-`, out)

	// A file that only compiling needs.
	for _, name := range []string{"nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/include/cuda_fp16.h"} {
		path := filepath.Join(m.bundle, "cuda13", name)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		out, _, code = m.run(t, "doctor")
		require.Zero(t, code)
		require.Contains(t, out, "  - [file-missing] the bundle lacks "+path)
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
}
