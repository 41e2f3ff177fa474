package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
)

func TestDoctor(t *testing.T) {
	code, out, errors := (&fake{}).run("", "doctor", "-m", tinyModel(t))
	require.Equal(t, cli.ExitOK, code)
	require.Empty(t, errors)
	for _, line := range []string{
		`version +mlxcel ` + cli.Version, `system +\S`, `cpu +.*\d+ threads?$`, `memory +.* available$`,
		`library +/bundle/lib/cpu/libmlxshim.so$`, ` +backend mlx 1.2.3, variant cpu, MLX 0.32.4$`, ` +built for MLX 0.32.4$`,
		`tried +/elsewhere/libmlxshim.so: no such file$`, `device +cpu, 8\.00 GB of memory, of which 6\.00 GB available$`, `model +.*tiny: llama, \d+ parameters$`,
		`Everything needed is there\.$`,
	} {
		require.Regexp(t, `(?m)^`+line, out)
	}
}

func TestDoctorWithoutAModel(t *testing.T) {
	code, out, _ := (&fake{}).run("", "doctor")
	require.Equal(t, cli.ExitOK, code, "only the library must be there")
	require.Regexp(t, `(?m)^model +none$`, out)
	require.Contains(t, out, "What to do:\n  - "+runtime.ErrNoModel.Error())

	_, out, _ = (&fake{}).run("", "doctor", "-m", "no/such/model")
	require.Regexp(t, `(?m)^model +no/such/model: cannot be used$`, out)
	require.Contains(t, out, "What to do:\n")
}

func TestDoctorWithoutALibrary(t *testing.T) {
	f := &fake{openErr: &runtime.OpenError{
		Problem: "no backend library found", Remedy: "unzip everything",
		Attempts: []runtime.Attempt{{Path: "/one", Result: "no such file"}, {Path: "/two", Result: "is cut short"}},
	}}
	code, out, errs := f.run("", "doctor")
	require.Equal(t, cli.ExitFailure, code)
	require.Equal(t, "mlxcel: the library cannot be opened\n", errs)
	require.Regexp(t, `(?m)^library +cannot be opened\ntried +/one: no such file\n +/two: is cut short$`, out)
	require.Contains(t, out, "  - no backend library found: unzip everything\n")

	f.openErr = errors.New("there is no such backend")
	code, out, _ = f.run("", "doctor")
	require.Equal(t, cli.ExitFailure, code)
	require.Contains(t, out, "  - there is no such backend\n")
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
