package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
	"mlxcel/runtime/server/servertest"
)

// programVariable makes the test program, started anew, be the server with a fake model that never stops talking.
const programVariable = "MLXCEL_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) == "" {
		os.Exit(m.Run())
	}
	model := fake{servertest.New(), make(chan struct{})}
	model.Context = 1 << 20
	model.Script = func(prompt string, _ runtime.Request) servertest.Answer {
		return servertest.Answer{Text: "word ", Endless: strings.Contains(prompt, "long"), PerToken: 20 * time.Millisecond}
	}
	open := func(runtime.Options, string, runtime.ModelOptions) (Model, error) { return model, nil }
	os.Exit(program(open).Main(context.Background(), os.Args[1:], cli.Streams{Out: os.Stdout, Err: os.Stderr}))
}

// process is a server of its own process.
type process struct {
	*exec.Cmd
	log *lockedBuffer
	url string
}

func startProcess(t *testing.T, args ...string) *process {
	p := &process{Cmd: exec.Command(os.Args[0], args...), log: &lockedBuffer{}}
	p.Env = append(os.Environ(), programVariable+"=1", "MLXCEL_API_KEY=")
	p.Stderr = p.log
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "msg=ready") }, 20*time.Second, 5*time.Millisecond)
	p.url = listening.FindStringSubmatch(p.log.String())[1]
	return p
}

// stream begins an answer and returns its body when some of it has come.
func (p *process) stream(t *testing.T, content string) io.ReadCloser {
	t.Helper()
	response, err := http.Post(p.url+"/v1/chat/completions", "", strings.NewReader(`{"messages":[{"role":"user","content":"`+content+`"}],"stream":true}`))
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	_, err = io.CopyN(io.Discard, response.Body, 300)
	require.NoError(t, err)
	return response.Body
}

// code waits for the end of the process.
func (p *process) code(t *testing.T) int {
	t.Helper()
	ended := make(chan struct{})
	go func() { _ = p.Wait(); close(ended) }()
	select {
	case <-ended:
		return p.ProcessState.ExitCode()
	case <-time.After(20 * time.Second):
		require.Fail(t, "the process does not end", p.log.String())
		return 0
	}
}

// The first signal lets answers end, be it SIGTERM or Ctrl-C.
func TestFirstSignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := startProcess(t, "--port", "0")
		body := p.stream(t, "short")
		require.NoError(t, p.Process.Signal(signal))
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Contains(t, string(text), `"finish_reason":"stop"`)
		require.Contains(t, string(text), "[DONE]")
		require.Equal(t, cli.ExitOK, p.code(t), p.log.String())
		require.Contains(t, p.log.String(), "msg=stopped")
	}
}

// The second one ends at once.
func TestSecondSignal(t *testing.T) {
	p := startProcess(t, "--port", "0", "--grace", "1m")
	p.stream(t, "long")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "msg=stopping") }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, cli.ExitInterrupted, p.code(t))
}

// After kill -9, with answers on their way, the same port serves again.
func TestKillAndRestart(t *testing.T) {
	p := startProcess(t, "--port", "0")
	p.stream(t, "long")
	require.NoError(t, p.Process.Kill())
	p.code(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	p = startProcess(t, "--port", port)
	status, _ := get(t, p.url+"/health", "")
	require.Equal(t, 200, status)
}
