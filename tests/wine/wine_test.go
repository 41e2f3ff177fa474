// Package wine runs the bundle for Windows under Wine.
package wine

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

func TestVersion(t *testing.T) {
	bundle, wine := testenv.WindowsBundle(t), testenv.Wine(t)
	for _, program := range []string{"mlxcel", "mlxcel-server"} {
		out, errs, code := wine.Run(t, filepath.Join(bundle, program+".exe"), "--version")
		require.Zero(t, code, errs)
		require.Regexp(t, `^`+program+` \d+\.\d+\.\d+ windows/amd64 go`, out)
		require.Empty(t, errs)
	}
}

// answer is what generate --json prints, the part that does not depend on the machine.
type answer struct {
	Text         string `json:"text"`
	Prompt       []int  `json:"prompt_token_ids"`
	Tokens       []int  `json:"token_ids"`
	FinishReason string `json:"finish_reason"`
}

func TestSameTokensAsLinux(t *testing.T) {
	bundle, wine, model := testenv.WindowsBundle(t), testenv.Wine(t), testenv.Model(t)
	program := filepath.Join(testenv.Root(), "bin", "mlxcel")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%s is missing: run `go run ./dist build`", program)
	}
	for _, backend := range []string{"native", "mlx"} {
		t.Run(backend, func(t *testing.T) {
			args := []string{"generate", "--json", "-n", "12", "--backend", backend, "-p", "What is the capital of France?", "-m"}
			out, errs, code := wine.Run(t, filepath.Join(bundle, "mlxcel.exe"), append(args, wine.Path(model))...)
			require.Zero(t, code, errs)
			var windows, linux answer
			require.NoError(t, json.Unmarshal([]byte(out), &windows), out)

			there, err := exec.Command(program, append(args, model)...).Output()
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(there, &linux), string(there))
			require.NotEmpty(t, linux.Tokens)
			require.Equal(t, linux, windows)
			require.Contains(t, windows.Text, "Paris")
		})
	}
}
