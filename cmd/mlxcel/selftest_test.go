package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
	"mlxcel/tests/testenv"
)

func TestRealSelftest(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.txt")
	code, out, errs := runReal(t, "", "selftest", "--report", report)
	require.Equal(t, cli.ExitOK, code, out+errs)
	written, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Equal(t, out, string(written))
	for _, line := range []string{
		`  version +mlxcel ` + cli.Version + ` `, `  system +\S`, `  cpu +.*threads?: `, `  library +backend native `, `  uses +the CPU, `,
		`  llama-f32 +\d+ tokens right$`, `  qwen3-moe-f32 +\d+ tokens right$`, `  SmolLM2-135M-Instruct.Q4_1 +\d\d\d tokens right$`,
		`  llama, 134.5 million parameters +512 prompt tokens at \d.* tok/s`, `  passed +every token is right$`,
	} {
		require.Regexp(t, "(?m)^"+line, out)
	}
	// Nobody's names, and no paths.
	host, err := os.Hostname()
	require.NoError(t, err)
	me, err := user.Current()
	require.NoError(t, err)
	for _, private := range []string{testenv.Root(), testenv.CacheDir(), os.TempDir(), me.HomeDir, report, host} {
		require.NotContains(t, out, private)
	}
	require.NotRegexp(t, `\b`+me.Username+`\b`, out)
}

func TestSelftestFindsWhatIsWrong(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.txt")
	code, out, errs := (&fake{}).run("", "selftest", "--report", report)
	require.Equal(t, cli.ExitFailure, code)
	require.Regexp(t, `(?m)^  llama-f32 +WRONG: prompt \S+, token 1 of \d+, where the margin is `, out)
	require.Regexp(t, `(?m)^  failed +8 models wrong$`, out)
	require.Contains(t, errs, "what was computed is wrong: please report it")

	// Of an error only its kind is told.
	secret := "/home/someone/secret"
	code, out, errs = (&fake{openErr: &runtime.OpenError{Code: "file-damaged", Problem: secret, Remedy: "do"}}).run("", "selftest", "--report", report)
	require.Equal(t, cli.ExitFailure, code)
	require.Regexp(t, `(?m)^  stopped +the library cannot be opened: \[file-damaged\]$`, out)
	require.NotContains(t, out, secret)
	require.Contains(t, errs, secret, "the user sees it")

	code, _, errs = (&fake{}).run("", "selftest", "--report", filepath.Join(report, "no", "folder"))
	require.Equal(t, cli.ExitFailure, code)
	require.Contains(t, errs, "name another file with --report")
	require.Equal(t, 1, strings.Count(errs, "mlxcel: "))
}
