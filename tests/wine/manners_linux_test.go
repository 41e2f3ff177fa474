package wine

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/terminal"
	"mlxcel/tests/testenv"
)

// What Wine tells of calls of Windows: of one that keeps the machine awake or lets it sleep, and of new processes.
var (
	executionState = regexp.MustCompile(`NtSetThreadExecutionState \((0x[0-9a-f]+),`)
	newProcess     = regexp.MustCompile(`CreateProcessInternalW app .*`)
)

const traced = "WINEDEBUG=-all,warn+ntdll,trace+process"

// The machine is kept awake while a model is loaded and while an answer is written, and not in between.
func TestAwake(t *testing.T) {
	const awake, asleep = "0x80000001", "0x80000000" // ES_CONTINUOUS with and without ES_SYSTEM_REQUIRED
	wine := testenv.Wine(t)
	var output terminal.Output
	server := wine.Command(filepath.Join(filepath.Dir(mlxcel(t)), "mlxcel-server.exe"), "--port", "0", "-c", "256", "-m", wine.Path(testenv.Model(t)))
	server.Env = append(server.Env, traced)
	server.Stdout, server.Stderr = &output, &output
	require.NoError(t, server.Start())
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	expect := func(want ...string) {
		t.Helper()
		var states []string
		require.Eventually(t, func() bool {
			states = nil
			for _, call := range executionState.FindAllStringSubmatch(output.String(), -1) {
				states = append(states, call[1])
			}
			return len(states) >= len(want)
		}, time.Minute, 5*time.Millisecond, "%v", &output)
		require.Equal(t, want, states)
	}
	output.Expect(t, "msg=ready")
	expect(awake, asleep)
	url := listening.FindStringSubmatch(output.String())
	require.NotNil(t, url)
	answer, err := http.Post(url[1]+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "The", "max_tokens": 4}`))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	answer.Body.Close()
	expect(awake, asleep, awake, asleep)
}

// No other process is started, whose console would flash up on the screen.
func TestNoOtherProcess(t *testing.T) {
	wine, program := testenv.Wine(t), mlxcel(t)
	model := wine.Path(testenv.Model(t))
	_, _, _ = wine.Run(t, program, "--version") // the first program makes Wine start its services
	for _, backend := range []string{"native", "mlx"} {
		out, code := run(t, wine, program, []string{traced}, "generate", "--backend", backend, "-n", "2", "-p", question, "-m", model)
		require.Zero(t, code, out)
		require.Contains(t, out, "trace:process:", "Wine traces")
		require.Empty(t, newProcess.FindAllString(out, -1))
	}
	out, _ := run(t, wine, program, []string{traced}, "doctor")
	require.Empty(t, newProcess.FindAllString(out, -1))
	// One that starts another is seen.
	out, _ = run(t, wine, filepath.Join(wine.System32(), "cmd.exe"), []string{traced}, "/c", "hostname.exe")
	require.Contains(t, strings.Join(newProcess.FindAllString(out, -1), "\n"), "hostname.exe")
}
