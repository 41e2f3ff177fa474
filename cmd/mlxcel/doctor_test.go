package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
	"mlxcel/tests/testenv"
)

func TestDoctor(t *testing.T) {
	code, out, errors := (&fake{driver: runtime.Driver{Problem: "none", Code: runtime.DriverMissing}}).run("", "doctor", "-m", tinyModel(t))
	require.Equal(t, cli.ExitOK, code)
	require.Empty(t, errors)
	for _, line := range []string{
		`version +mlxcel ` + cli.Version, `system +\S`, `cpu +.*\d+ threads?$`, `memory +.* available$`,
		`library +/bundle/lib/cpu/libmlxshim.so$`, ` +backend mlx 1.2.3, variant cpu, MLX 0.32.4$`, ` +built for MLX 0.32.4$`,
		`nvidia +no driver$`,
		`tried +/elsewhere/libmlxshim.so: no such file$`, `can use +the CPU, with avx2$`, `uses +the CPU, 8\.00 GB of memory, of which 6\.00 GB available$`, `model +.*tiny: llama, \d+ parameters$`,
		`Everything needed is there\.$`,
	} {
		require.Regexp(t, `(?m)^`+line, out)
	}
}

func TestDoctorWithoutAModel(t *testing.T) {
	code, out, _ := (&fake{}).run("", "doctor")
	require.Equal(t, cli.ExitOK, code, "only the library must be there")
	require.Regexp(t, `(?m)^model +none$`, out)
	require.Contains(t, out, "What to do:\n  - [model-missing] "+runtime.ErrNoModel.Error())

	_, out, _ = (&fake{}).run("", "doctor", "-m", "no/such/model")
	require.Regexp(t, `(?m)^model +no/such/model: cannot be used$`, out)
	require.Contains(t, out, "What to do:\n")
}

func TestDoctorWithoutALibrary(t *testing.T) {
	f := &fake{openErr: &runtime.OpenError{
		Code: "bundle-missing", Problem: "no backend library found", Remedy: "unzip everything",
		Attempts: []runtime.Attempt{{Path: "/one", Result: "no such file"}, {Path: "/two", Result: "is cut short"}},
	}}
	code, out, errs := f.run("", "doctor")
	require.Equal(t, cli.ExitFailure, code)
	require.Equal(t, "mlxcel: the library cannot be opened\n", errs)
	require.Regexp(t, `(?m)^library +cannot be opened\ntried +/one: no such file\n +/two: is cut short$`, out)
	require.Contains(t, out, "  - [bundle-missing] no backend library found: unzip everything\n")

	f.openErr = errors.New("there is no such backend")
	code, out, _ = f.run("", "doctor")
	require.Equal(t, cli.ExitFailure, code)
	require.Contains(t, out, "  - [library] there is no such backend\n")
}

func TestDoctorWithAGPU(t *testing.T) {
	gpus := []runtime.GPU{
		{Name: "NVIDIA GeForce RTX 4070", UUID: "GPU-1", Major: 8, Minor: 9, Memory: 12e9},
		{Index: 1, Name: "NVIDIA GeForce GTX 1080", UUID: "GPU-2", Major: 6, Minor: 1, Memory: 8e9},
	}
	f := &fake{driver: runtime.Driver{CUDA: 12040, GPUs: gpus}, noGPU: "the driver is old", skipped: []*runtime.OpenError{
		{Code: "driver-old", Problem: "the driver is old", Remedy: "--device cpu"},
		{Code: "file-damaged", Problem: "native is cut short", Remedy: "unzip it"},
	}}
	code, out, _ := f.run("", "doctor")
	require.Equal(t, cli.ExitOK, code)
	for _, line := range []string{
		`nvidia +driver for CUDA up to 12\.4$`, ` +cuda:0 is NVIDIA GeForce RTX 4070, compute capability 8\.9, 12\.0\d* GB, GPU-1$`,
		` +cuda:1 is NVIDIA GeForce GTX 1080, compute capability 6\.1, .*, which the libraries have no code for$`,
		` +and no GPU, since the driver is old$`, `  - \[driver-old\] the driver is old: until then everything is computed on the CPU$`,
		`  - \[file-damaged\] native is cut short: unzip it$`,
	} {
		require.Regexp(t, `(?m)^`+line, out)
	}
}

// Every code is explained once, and has its place in the documentation.
func TestDoctorCodes(t *testing.T) {
	code, out, _ := (&fake{}).run("", "doctor", "--codes")
	require.Equal(t, cli.ExitOK, code)
	seen := map[runtime.Code]bool{}
	for _, c := range doctorCodes {
		require.False(t, seen[c.Code], c.Code)
		seen[c.Code] = true
		require.Regexp(t, `^[a-z]+(-[a-z]+)*$`, c.Code)
		for _, sentence := range []string{c.Means, c.Remedy} {
			require.Regexp(t, `^[A-Z].*\.$`, sentence)
			require.Contains(t, out, " | "+sentence+" |")
		}
	}
	docs, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "windows.md"))
	require.NoError(t, err)
	require.Contains(t, string(docs), out, "take what `mlxcel doctor --codes` prints")
}

func TestRemedy(t *testing.T) {
	for problem, want := range map[string]string{
		"libc.so.6: version `GLIBC_2.35' not found":                    "newer Linux",
		"libgomp.so.1: cannot open shared object file":                 "libgomp1",
		"x.so: failed to map segment from shared object":               "noexec",
		"the library x.so cannot be read: Permission denied":           "let your user read",
		"the library x.so is damaged: it is not a library for Windows": "as the loader says",
	} {
		require.Contains(t, remedy(&runtime.OpenError{Problem: problem, Remedy: "as the loader says"}), want)
	}
}
