package server

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/server"
	"mlxcel/tests/testenv"
)

// python returns an interpreter that has the package openai: that of the test environment.
func python(t *testing.T) string {
	t.Helper()
	path := testenv.Python(t)
	if exec.Command(path, "-c", "import openai").Run() == nil {
		return path
	}
	const reason = "the Python of the test environment lacks the package openai: run `go run ./dist test` once"
	if os.Getenv("MLXCEL_TEST_STRICT") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

// The official Python client works against the server as it is.
func TestPythonClient(t *testing.T) {
	interpreter := python(t)
	url, _ := fakeServer(t, server.Options{Keys: []string{"key"}})
	embeds, m := fakeServer(t, server.Options{})
	m.Vectors = true
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, interpreter, filepath.Join("testdata", "client.py"), url, embeds)
	command.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8", "NO_PROXY=127.0.0.1", "OPENAI_LOG=")
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Equal(t, "all answers are right", strings.TrimSpace(string(output)))
}
