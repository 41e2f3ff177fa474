package wine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// The report that users are asked for: every token is right, and nothing tells where the files are.
func TestSelftest(t *testing.T) {
	wine := testenv.Wine(t)
	report := filepath.Join(t.TempDir(), "report.txt")
	out, errs, code := wine.Run(t, mlxcel(t), "selftest", "-m", wine.Path(testenv.Model(t)), "--report", wine.Path(report))
	require.Zero(t, code, out+errs)
	written, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Equal(t, out, string(written))
	for _, line := range []string{
		`  version +mlxcel \S+ windows/amd64 go`, `  system +Windows `, `  nvidia +\[driver-missing\]`, `  library +backend native `, `  uses +the CPU`,
		`  llama-f32 +\d+ tokens right`, `  qwen3-moe-f32 +\d+ tokens right`, `  SmolLM2-135M-Instruct\.Q4_1 +\d\d\d tokens right`,
		`  llama, 134\.5 million parameters +512 prompt tokens at \d.* tok/s`, `  passed +every token is right`,
	} {
		require.Regexp(t, "(?m)^"+line, out)
	}
	require.NotRegexp(t, `[A-Za-z]:[\\/]`, strings.ReplaceAll(out, "\r", ""))
	require.Contains(t, errs, wine.Path(report))
}
