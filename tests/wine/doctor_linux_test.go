package wine

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/driver"
	"mlxcel/tests/testenv"
)

// run runs a program under a Wine and returns what it wrote, both streams, and its exit code.
func run(t *testing.T, wine *testenv.WineRunner, program string, environment []string, args ...string) (text string, code int) {
	t.Helper()
	cmd := wine.Command(program, args...)
	cmd.Env = append(cmd.Env, environment...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestDoctor(t *testing.T) {
	wine := testenv.Wine(t)
	out, code := run(t, wine, mlxcel(t), nil, "doctor", "-m", wine.Path(testenv.Model(t)))
	require.Zero(t, code, out)
	require.Regexp(t, `(?m)^nvidia +no driver\s*$`, out)
	require.Regexp(t, `(?m)^uses +the CPU, `, out)
	require.Regexp(t, `(?m)^model +Z:\\.*\.gguf: llama`, out)
	require.Contains(t, out, "Everything needed is there.")
}

// gpuBundle puts a bundle into a folder that has libraries for GPUs, as far as can be seen from outside: they are those
// for the CPU, and what NVIDIA makes is something else. Its mlxcel.exe is returned.
func gpuBundle(t *testing.T, dir string) string {
	t.Helper()
	program := bundleIn(t, dir)
	lib := filepath.Join(dir, "lib")
	for _, name := range []string{"mlxshim.dll", "mlx.dll"} {
		link(t, filepath.Join(lib, "cpu", name), filepath.Join(lib, "cuda13", name))
	}
	library, err := os.ReadFile(driver.Build(t, "windows", driver.Working, t.TempDir()))
	require.NoError(t, err)
	for _, name := range []string{
		"nvidia/cuda_nvrtc/bin/nvrtc64_130_0.dll", "nvidia/cuda_nvrtc/bin/nvrtc-builtins64_130.dll", "nvidia/cublas/bin/cublasLt64_13.dll",
		"nvidia/cu13/include/cuda_fp16.h", "cuda13/include/cccl/version.h",
	} {
		replace(t, filepath.Join(lib, name), library)
	}
	return program
}

// What the driver says is wrong is told with its code, and the answer comes from the CPU.
func TestDrivers(t *testing.T) {
	wine := testenv.Wine(t).Copy(t)
	program := gpuBundle(t, filepath.Join(t.TempDir(), "bundle"))
	model := wine.Path(testenv.Model(t))
	nvcuda, hybrid := filepath.Join(wine.System32(), "nvcuda.dll"), filepath.Join(wine.System32(), "nvcudart_hybrid64.dll")
	install := func(f driver.Fault) {
		data, err := os.ReadFile(driver.Build(t, "windows", f, t.TempDir()))
		require.NoError(t, err)
		replace(t, nvcuda, data)
		replace(t, hybrid, data) // it is only looked for
	}

	check := func(name, code, words string, environment ...string) {
		t.Run(name, func(t *testing.T) {
			out, exit := run(t, wine, program, environment, "doctor", "-m", model)
			require.Zero(t, exit, out)
			require.Contains(t, out, "  - ["+code+"] ")
			require.Contains(t, out, words)
			require.Regexp(t, `(?m)^library .*\\lib\\native\\mlxnative\.dll`, out)

			if long() || code == "driver-missing" { // the rest is the same for all
				cmd := wine.Command(program, "generate", "-n", "8", "-p", question, "-m", model)
				cmd.Env = append(cmd.Env, environment...)
				var errs bytes.Buffer
				cmd.Stderr = &errs
				answer, err := cmd.Output()
				require.NoError(t, err, errs.String())
				require.Contains(t, string(answer), "The capital of France is Paris")
				require.Regexp(t, `(?m)^mlxcel: computing on the CPU: [^\n]+$`, errs.String())
				require.Contains(t, errs.String(), words)
			}

			out, exit = run(t, wine, program, environment, "generate", "--device", "cuda", "-p", "x", "-m", model)
			require.Equal(t, 1, exit, out)
			require.Contains(t, out, words)
		})
	}
	check("no driver", "driver-missing", "there is no NVIDIA driver on this system")
	install(driver.Working)
	require.NoError(t, os.Remove(hybrid))
	check("a driver without CUDA's runtime", "driver-partial", "lacks nvcudart_hybrid64.dll")
	for _, f := range driver.Faults {
		install(f)
		words := f.Says
		if f.Name == "datacenter" {
			words = "MLX's Windows build has no code for the GPU Test GPU, whose compute capability is 9.0"
		}
		check(f.Name, f.Code, words, f.Environment...)
	}

	// A driver with which all seems right, until the library asks for its GPU.
	install(driver.Working)
	out, exit := run(t, wine, program, nil, "doctor", "-m", model)
	require.Equal(t, 1, exit, out)
	require.Regexp(t, `(?m)^nvidia +driver for CUDA up to 13\.0`, out)
	require.Contains(t, out, "cuda:0 is Test GPU, compute capability 8.9, 8.59 GB, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
	require.Contains(t, out, "  - [device-failed] ")
	require.Regexp(t, `(?m)^kernels +C:\\users\\.*\\AppData\\Local\\mlxcel\\jit\\[0-9a-f]{12}\\Test-GPU-sm89\s*$`, out)
	out, exit = run(t, wine, program, nil, "generate", "-p", "x", "-m", model)
	require.Equal(t, 1, exit)
	require.Regexp(t, `(?m)^mlxcel: .*--device cpu`, out)

	// The libraries for GPUs are not taken from elsewhere either.
	planted, evil := t.TempDir(), makeEvil(t)
	plant(t, evil, planted, evilNames...)
	cmd := wine.Command(program, "doctor", "-m", model)
	cmd.Dir, cmd.Env = planted, append(cmd.Env, "WINEPATH="+wine.Path(planted))
	text, _ := cmd.CombinedOutput()
	require.Equal(t, 1, cmd.ProcessState.ExitCode(), string(text))
	require.Contains(t, string(text), "  - [device-failed] ")

	// A cache that cannot be written.
	caches, err := filepath.Glob(filepath.Join(wine.DriveC(), "users", "*", "AppData", "Local", "mlxcel"))
	require.NoError(t, err)
	require.NotEmpty(t, caches)
	for _, cache := range caches {
		require.NoError(t, os.RemoveAll(cache))
		require.NoError(t, os.WriteFile(cache, nil, 0o644))
	}
	out, _ = run(t, wine, program, nil, "doctor", "-m", model)
	require.Contains(t, out, "cannot be written")
	require.Regexp(t, `(?m)^kernels +.*mlxcel-jit-`, out)

	// A file that only compiling needs.
	for _, name := range []string{`nvidia\cuda_nvrtc\bin\nvrtc64_130_0.dll`, `nvidia\cu13\include\cuda_fp16.h`} {
		path := filepath.Join(filepath.Dir(program), "lib", strings.ReplaceAll(name, `\`, "/"))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		out, exit = run(t, wine, program, nil, "doctor", "-m", model)
		require.Zero(t, exit, out)
		require.Regexp(t, `- \[file-missing\] the bundle lacks .*`+regexp.QuoteMeta(name), out)
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	out, exit = run(t, wine, program, nil, "generate", "--device", "cuda:1", "-p", "x", "-m", model)
	require.Equal(t, 1, exit)
	require.Contains(t, out, "there is no GPU cuda:1, only cuda:0 (Test GPU, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f)")
}

// The empty folder that programs leave out when they unzip is made again.
func TestEmptyFolder(t *testing.T) {
	wine := testenv.Wine(t).Copy(t)
	dir := filepath.Join(t.TempDir(), odd)
	program := gpuBundle(t, dir)
	data, err := os.ReadFile(driver.Build(t, "windows", driver.Working, t.TempDir()))
	require.NoError(t, err)
	for _, name := range []string{"nvcuda.dll", "nvcudart_hybrid64.dll"} {
		replace(t, filepath.Join(wine.System32(), name), data)
	}
	out, _ := run(t, wine, program, nil, "doctor")
	require.DirExists(t, filepath.Join(dir, "lib", "nvidia", "cudnn", "bin"), out)
	require.Contains(t, out, "made again")
	require.Regexp(t, `(?m)^library +[ -~]+\\cuda13\\mlxshim\.dll`, out, "a path that NVIDIA's compiler can read")
}

func TestDamagedBundles(t *testing.T) {
	wine := testenv.Wine(t)
	model := wine.Path(testenv.Model(t))
	shorten := func(t *testing.T, path string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		replace(t, path, data[:len(data)/2])
	}
	remove := func(t *testing.T, path string) { require.NoError(t, os.RemoveAll(path)) }
	for _, test := range []struct {
		name, file string
		damage     func(t *testing.T, path string)
		backend    string
		code       string
		exit       int
	}{
		{"MLX is missing", "cpu/mlx.dll", remove, "mlx", "file-missing", 1},
		{"what MLX needs is missing", "common/libopenblas.dll", remove, "mlx", "file-missing", 1},
		{"MLX is cut short", "cpu/mlx.dll", shorten, "mlx", "file-damaged", 1},
		{"what MLX needs is cut short", "common/libopenblas.dll", shorten, "mlx", "file-damaged", 1},
		{"MLX is no library", "cpu/mlx.dll", func(t *testing.T, path string) { replace(t, path, []byte("<html>not found</html>")) }, "mlx", "file-damaged", 1},
		{"another version", "cpu/mlxshim.dll", func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			marker := []byte("mlxshim-built-for-mlx=0.")
			require.True(t, bytes.Contains(data, marker))
			replace(t, path, bytes.Replace(data, marker, []byte("mlxshim-built-for-mlx=9."), 1))
		}, "mlx", "wrong-version", 1},
		{"native is cut short", "native/mlxnative.dll", shorten, "auto", "file-damaged", 0},
		{"all is missing", ".", remove, "auto", "bundle-missing", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			program := bundleIn(t, dir)
			path := filepath.Join(dir, "lib", test.file)
			test.damage(t, path)
			out, exit := run(t, wine, program, nil, "doctor", "--backend", test.backend, "-m", model)
			require.Equal(t, test.exit, exit, out)
			require.Contains(t, out, "["+test.code+"] ")
			if test.file != "." {
				require.Contains(t, out, wine.Path(path))
			}
			out, exit = run(t, wine, program, nil, "generate", "--backend", test.backend, "-n", "1", "--no-chat-template", "-p", "The", "-m", model)
			require.Equal(t, test.exit, exit, out)
			require.Regexp(t, `(?m)^mlxcel: `, out)
		})
	}
}

// The archive for CUDA 12 has files of other names, and drivers for it lack the one that CUDA 13 needs.
func TestCUDA12(t *testing.T) {
	wine := testenv.Wine(t).Copy(t)
	dir := filepath.Join(t.TempDir(), "bundle")
	program, lib := gpuBundle(t, dir), filepath.Join(dir, "lib")
	for from, to := range map[string]string{
		"cuda13": "cuda12", "nvidia/cu13": "nvidia/cuda_runtime",
		"nvidia/cuda_nvrtc/bin/nvrtc64_130_0.dll": "nvidia/cuda_nvrtc/bin/nvrtc64_120_0.dll",
		"nvidia/cublas/bin/cublasLt64_13.dll":     "nvidia/cublas/bin/cublasLt64_12.dll",
	} {
		require.NoError(t, os.Rename(filepath.Join(lib, from), filepath.Join(lib, to)))
	}
	data, err := os.ReadFile(driver.Build(t, "windows", driver.Fault{Version: 12040}, t.TempDir()))
	require.NoError(t, err)
	replace(t, filepath.Join(wine.System32(), "nvcuda.dll"), data)
	out, _ := run(t, wine, program, nil, "doctor", "-m", wine.Path(testenv.Model(t)))
	require.Regexp(t, `(?m)^library .*\\lib\\cuda12\\mlxshim\.dll`, out, "it is opened")
	require.Contains(t, out, "[device-failed] ", "since MLX in it is the one for the CPU")
}
