package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
)

func TestBench(t *testing.T) {
	f := &fake{}
	code, out, errors := f.run("", "bench", "--random", "4b", "--bits", "8", "--prompt", "30", "-n", "5", "--rounds", "2", "--json")
	require.Equal(t, cli.ExitOK, code, errors)
	require.Equal(t, "4b", f.shape)
	require.Equal(t, 8, f.bits)
	var report benchReport
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, 30, report.PromptTokens)
	require.Equal(t, benchRound{0.5, 60, 0}, report.Median)
	require.EqualValues(t, 150e6, report.DevicePeak)
	require.Len(t, f.requests, 3, "one before the two that count")
	require.Len(t, f.requests[2].Tokens, 30)
	require.NotEqual(t, f.requests[1].Tokens[0], f.requests[2].Tokens[0], "nothing is reused")
	require.True(t, f.requests[0].IgnoreEOS)
	require.Equal(t, 1, f.closed)

	code, out, errors = (&fake{}).run("", "bench", "-m", "./some/model")
	require.Equal(t, cli.ExitOK, code, errors)
	require.Contains(t, out, "median   1024.0 tok/s prompt")

	code, _, errors = (&fake{}).run("", "bench", "--random", "4b", "--prompt", "2000")
	require.Equal(t, cli.ExitFailure, code)
	require.Contains(t, errors, "2000 prompt tokens and 128 new ones are more than the context of 2048")
}

func TestWhatIsSaidAboutTheGPU(t *testing.T) {
	_, _, errors := (&fake{noGPU: "there is no NVIDIA driver"}).run("", "generate", "-p", "x")
	require.Contains(t, errors, "mlxcel: computing on the CPU: there is no NVIDIA driver\n")
	_, _, errors = (&fake{noGPU: "there is no NVIDIA driver"}).run("", "generate", "-p", "x", "--device", "cpu")
	require.NotContains(t, errors, "driver", "who wants the CPU need not be told why")

	f := &fake{jitCache: t.TempDir()}
	_, _, errors = f.run("", "generate", "-p", "x")
	require.Contains(t, errors, "mlxcel: compiling for the GPU RTX; the next start finds it in "+f.jitCache+"\n")
	require.NoError(t, os.WriteFile(filepath.Join(f.jitCache, "kernels.cubin"), nil, 0o644))
	_, _, errors = f.run("", "generate", "-p", "x")
	require.NotContains(t, errors, "compiling")
}
