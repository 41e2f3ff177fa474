package loader

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
	"mlxcel/tests/testenv"
)

// A library cannot be unloaded, so each test of Open runs in a process of its
// own: this test program again, with the bundles to open one after the other.
const openVariable, backendVariable = "MLXCEL_TEST_OPEN", "MLXCEL_TEST_BACKEND"

func TestMain(m *testing.M) {
	bundles, ok := os.LookupEnv(openVariable)
	if !ok {
		os.Exit(m.Run())
	}
	for _, bundle := range filepath.SplitList(bundles) {
		loaded, err := Open(Options{Bundle: bundle, Backend: os.Getenv(backendVariable)})
		var open *OpenError
		switch {
		case errors.As(err, &open):
			fmt.Printf("version mismatch %v: %v\n", errors.Is(err, bindings.ErrVersion), err)
			for _, a := range open.Attempts {
				fmt.Printf("tried %s: %s\n", a.Path, a.Result)
			}
		case err != nil:
			fmt.Println("refused:", err)
		default:
			fmt.Printf("opened %s %s: %+v\n", loaded.Variant, loaded.Path, loaded.Library.Info())
			for _, a := range loaded.Attempts {
				fmt.Printf("tried %s: %s\n", a.Path, a.Result)
			}
		}
	}
	for _, e := range environment {
		fmt.Printf("environment %s=%s\n", e.name, libcGetenv(e.name))
	}
}

// openElsewhere returns what opening the bundles with the backend on MLX prints,
// in a new process.
func openElsewhere(t *testing.T, bundles ...string) string {
	t.Helper()
	return openBackendElsewhere(t, "mlx", bundles...)
}

func openBackendElsewhere(t *testing.T, backend string, bundles ...string) string {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), openVariable+"="+strings.Join(bundles, string(filepath.ListSeparator)), backendVariable+"="+backend)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func libcGetenv(name string) string {
	getenv, err := purego.Dlsym(purego.RTLD_DEFAULT, "getenv")
	if err != nil {
		return err.Error()
	}
	text := append([]byte(name), 0)
	value, _, _ := purego.SyscallN(getenv, uintptr(unsafe.Pointer(&text[0])))
	if value == 0 {
		return "unset"
	}
	return goString(value)
}

// smallLibrary returns the bytes of a shared library of the system: libdl, which
// lies beside the C library.
func smallLibrary(t *testing.T) []byte {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	libc := regexp.MustCompile(`/\S*/libc\.so\.6`).Find(maps)
	require.NotNil(t, libc, "no C library found in %s", maps)
	data, err := os.ReadFile(filepath.Join(filepath.Dir(string(libc)), "libdl.so.2"))
	require.NoError(t, err)
	return data
}

// fakeBundle makes a bundle of the given files in lib/cpu.
func fakeBundle(t *testing.T, files map[string][]byte) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "lib")
	for name, data := range files {
		path := filepath.Join(root, "cpu", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	return root
}

func TestBrokenBundles(t *testing.T) {
	library := smallLibrary(t)
	shim := append(bytes.Clone(library), marker+"9.8.7\x00"...)
	other := bytes.Clone(library)
	other[18] = 0xf3 // RISC-V
	for _, test := range []struct {
		name  string
		files map[string][]byte
		want  string // %s is the folder of the variant
	}{
		{"nothing", nil, "no backend library found: tried %s/libmlxshim.so (no such file or directory), "},
		{"no MLX", map[string][]byte{shimFile: shim},
			"the library %s/mlx/lib/libmlx.so cannot be read: no such file or directory"},
		{"empty", map[string][]byte{shimFile: shim, mlxFile: {}},
			"the library %s/mlx/lib/libmlx.so is damaged: it is not a library for this system"},
		{"text", map[string][]byte{shimFile: []byte("version https://git-lfs.github.com/spec/v1\n"), mlxFile: library},
			"the library %s/libmlxshim.so is damaged: it is not a library for this system"},
		{"other processor", map[string][]byte{shimFile: shim, mlxFile: other},
			"the library %s/mlx/lib/libmlx.so is damaged: it is not a library for this system"},
		{"cut MLX", map[string][]byte{shimFile: shim, mlxFile: library[:len(library)-1]},
			fmt.Sprintf("the library %%s/mlx/lib/libmlx.so is cut short: it has %d bytes of %d", len(library)-1, len(library))},
		{"cut within the tables", map[string][]byte{shimFile: library[:70], mlxFile: library},
			"the library %s/libmlxshim.so is cut short: it has 70 bytes of "},
		{"cut dependency", map[string][]byte{shimFile: shim, mlxFile: library, "mlx_cpu.libs/libblas.so.3": library[:1000]},
			"the library %s/mlx_cpu.libs/libblas.so.3 is cut short: it has 1000 bytes of "},
		{"no marker", map[string][]byte{shimFile: library, mlxFile: library},
			"the library %s/libmlxshim.so is not one of mlxcel: it does not tell which MLX it was built for"},
		{"not MLX", map[string][]byte{shimFile: shim, mlxFile: library},
			"%s/mlx/lib/libmlx.so is not an MLX that mlxcel knows: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := fakeBundle(t, test.files)
			out := openElsewhere(t, root)
			want := strings.ReplaceAll(test.want, "%s", filepath.Join(root, "cpu"))
			require.Contains(t, out, "version mismatch false: "+want)
			require.Contains(t, out, "; "+remedy+"\n")
			require.Contains(t, out, "tried "+filepath.Join(root, "cpu"))
		})
	}
}

// TestDlerror: the system's own words reach the user.
func TestDlerror(t *testing.T) {
	real := filepath.Join(testenv.Bundle(t), "cpu")
	mlx, err := os.ReadFile(filepath.Join(real, mlxFile))
	require.NoError(t, err)
	shim, err := os.ReadFile(filepath.Join(real, shimFile))
	require.NoError(t, err)
	out := openElsewhere(t, fakeBundle(t, map[string][]byte{shimFile: shim, mlxFile: mlx}))
	require.Contains(t, out, "cpu/mlx/lib/libmlx.so cannot be opened: ")
	require.Contains(t, out, "cannot open shared object file: No such file or directory")
}

// Go may move a goroutine to another thread between the two calls that this takes.
func TestDlerrorOfThread(t *testing.T) {
	const goroutines = 32
	failures := make(chan error, goroutines)
	for i := range goroutines {
		go func() {
			for k := range 200 {
				missing := fmt.Sprintf("/nowhere/%d-%d.so", i, k)
				if _, err := openPrivate(missing); err == nil || !strings.Contains(err.Error(), missing+": cannot open shared object file") {
					failures <- fmt.Errorf("%s: %v", missing, err)
					return
				}
			}
			failures <- nil
		}()
	}
	for range goroutines {
		require.NoError(t, <-failures)
	}
}

func TestOtherMLX(t *testing.T) {
	real := filepath.Join(testenv.Bundle(t), "cpu")
	shim, err := os.ReadFile(filepath.Join(real, shimFile))
	require.NoError(t, err)
	version := (&search{}).mustBuiltFor(t, filepath.Join(real, shimFile))
	other := strings.Repeat("9", len(version))
	require.NotEqual(t, version, other)

	root := fakeBundle(t, map[string][]byte{shimFile: bytes.Replace(shim, []byte(marker+version), []byte(marker+other), 1)})
	require.NoError(t, os.Symlink(filepath.Join(real, "mlx"), filepath.Join(root, "cpu", "mlx")))
	out := openElsewhere(t, root)
	require.Contains(t, out, fmt.Sprintf("version mismatch true: %s/cpu/libmlxshim.so was built for MLX %s, but %s/cpu/mlx/lib/libmlx.so is MLX %s; ",
		root, other, root, version))
}

func (s *search) mustBuiltFor(t *testing.T, path string) string {
	t.Helper()
	version, err := s.builtFor(path)
	require.NoError(t, err)
	return version
}

func TestOpen(t *testing.T) {
	root := testenv.Bundle(t)
	shim := filepath.Join(root, "cpu", shimFile)
	broken := fakeBundle(t, map[string][]byte{shimFile: nil})
	t.Setenv("MLX_CUDA_USE_CUDNN_SDPA", "1")
	// The second time is the same; a failure before loading does no harm; two
	// bundles in one process do not work.
	out := openElsewhere(t, broken, root, filepath.Dir(shim), filepath.Join(broken, "cpu"))
	require.Contains(t, out, "cannot be read: no such file")
	require.Equal(t, 2, strings.Count(out, "opened cpu "+shim+": {Backend:mlx "), out)
	require.Contains(t, out, "tried "+shim+": backend mlx ")
	require.Contains(t, out, "refused: this process has loaded libraries of "+filepath.Dir(shim))
	require.Contains(t, out, "environment MLX_CUDA_USE_CUDNN_SDPA=1\n")
	require.Contains(t, out, "environment MLX_ENABLE_CACHE_THRASHING_CHECK=0\n")
}

// Where the choice is free, native is taken; it needs no MLX and sets nothing for
// it. Where native is broken, the library on MLX is, and the attempts tell why.
func TestOpenNative(t *testing.T) {
	root := testenv.Bundle(t)
	native := filepath.Join(root, "native", nativeFile)
	out := openBackendElsewhere(t, "auto", root)
	require.Contains(t, out, "opened native "+native+": {Backend:native ")
	require.Contains(t, out, "environment MLX_CUDA_USE_CUDNN_SDPA=unset\n")

	library, err := os.ReadFile(native)
	require.NoError(t, err)
	alone := t.TempDir()
	write := func(data []byte) {
		path := filepath.Join(alone, "native", nativeFile)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	write(library)
	require.Contains(t, openBackendElsewhere(t, "", alone), "opened native ", "with no MLX anywhere")

	write(library[:len(library)/2])
	require.NoError(t, os.Symlink(filepath.Join(root, "cpu"), filepath.Join(alone, "cpu")))
	out = openBackendElsewhere(t, "auto", alone)
	require.Contains(t, out, "opened cpu ")
	require.Contains(t, out, "is cut short")
	require.Contains(t, openBackendElsewhere(t, "native", alone), "is cut short")
}

// MLX reads the C library's environment, not Go's.
func TestSetenvReachesC(t *testing.T) {
	const name = "MLXCEL_TEST_VARIABLE"
	t.Setenv(name, "before") // also restores it
	require.NoError(t, setenv(name, "naïve"))
	require.Equal(t, "naïve", libcGetenv(name))
	require.Equal(t, "unset", libcGetenv(name+"_2"))
}

func FuzzImageSize(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = imageSize(bytes.NewReader(data))
	})
}
