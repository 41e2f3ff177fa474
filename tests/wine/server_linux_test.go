package wine

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/terminal"
	"mlxcel/tests/testenv"
)

var listening = regexp.MustCompile(`url=(http://127\.0\.0\.1:\d+)`)

// The official Python client works against mlxcel-server.exe: whole and streamed answers, the same text, and Ctrl-C
// lets a running answer end.
func TestServer(t *testing.T) {
	wine := testenv.Wine(t)
	server := filepath.Join(filepath.Dir(mlxcel(t)), "mlxcel-server.exe")
	c := onConsole(t, server, "--port", "0", "-m", wine.Path(testenv.Model(t)), "-c", "1024")
	c.expect(t, "msg=ready")
	url := listening.FindStringSubmatch(c.text())
	require.NotNil(t, url, c.text())

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := func(what string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, testenv.Python(t), filepath.Join("testdata", "client.py"), url[1], what)
		cmd.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8", "NO_PROXY=127.0.0.1", "OPENAI_LOG=")
		return cmd
	}
	out, err := client("check").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "all answers are right", strings.TrimSpace(string(out)))

	var running terminal.Output
	long := client("long")
	long.Stdout, long.Stderr = &running, &running
	require.NoError(t, long.Start())
	running.Expect(t, "begun")
	c.Press(t, terminal.CtrlC)
	require.NoError(t, long.Wait(), running.String())
	require.Contains(t, running.String(), "ended with stop")
	c.expect(t, "msg=stopped")
	require.Zero(t, c.exitCode(t))
}
