package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
	"mlxcel/runtime/server/servertest"
	testhub "mlxcel/tests/hub"
)

// fake is a model that can be closed.
type fake struct {
	*servertest.Model
	closed chan struct{}
}

func (f fake) Close() error { close(f.closed); return nil }

// running is the command, being run.
type running struct {
	model    fake
	path     string
	settings runtime.ModelOptions
	stop     context.CancelFunc
	code     chan int
	log      *lockedBuffer
}

func program(open Open) *cli.Single {
	return &cli.Single{Command: Command("server", open), Aliases: Aliases()}
}

func run(t *testing.T, args ...string) *running {
	t.Setenv("MLXCEL_API_KEY", "")
	r := &running{model: fake{servertest.New(), make(chan struct{})}, code: make(chan int, 1), log: &lockedBuffer{}}
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	t.Cleanup(cancel)
	open := func(_ runtime.Options, path string, m runtime.ModelOptions) (Model, error) {
		r.path, r.settings = path, m
		return r.model, nil
	}
	go func() {
		r.code <- program(open).Main(ctx, append([]string{"--port", "0"}, args...), cli.Streams{Out: io.Discard, Err: r.log})
	}()
	return r
}

var listening = regexp.MustCompile(`url=(\S+)`)

// url waits until the model is loaded.
func (r *running) url(t *testing.T) string {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "msg=ready") }, 10*time.Second, 5*time.Millisecond)
	return listening.FindStringSubmatch(r.log.String())[1]
}

func (r *running) end(t *testing.T) int {
	t.Helper()
	select {
	case code := <-r.code:
		return code
	case <-time.After(10 * time.Second):
		require.Fail(t, "the program does not end", r.log.String())
		return 0
	}
}

func get(t *testing.T, url, key string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func TestServeAndStop(t *testing.T) {
	r := run(t, "--alias", "org/name", "--parallel", "3", "--ctx-size", "100", "--queue", "7")
	url := r.url(t)
	require.True(t, strings.HasPrefix(url, "http://127.0.0.1:"))
	status, text := get(t, url+"/v1/models/org/name", "")
	require.Equal(t, 200, status, text)
	require.Equal(t, runtime.ModelOptions{ContextTokens: 100, Slots: 3, Queue: 7}, r.settings)
	r.stop()
	require.Equal(t, cli.ExitOK, r.end(t))
	<-r.model.closed
	require.Contains(t, r.log.String(), "msg=stopped")
	require.NotContains(t, r.log.String(), "WARN")
}

// Keys come from flags, the environment and a file, together.
func TestKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte("# ours\nfrom-file\n\n"), 0o600))
	r := run(t, "--api-key", "from-flag", "--api-key-file", file)
	t.Setenv("MLXCEL_API_KEY", "from-env, another")
	url := r.url(t)
	for _, key := range []string{"from-flag", "from-file"} {
		status, _ := get(t, url+"/v1/models", key)
		require.Equal(t, 200, status, key)
	}
	for _, key := range []string{"", "# ours", "wrong"} {
		status, _ := get(t, url+"/v1/models", key)
		require.Equal(t, 401, status, key)
	}
	o := options{}
	keys, err := o.allKeys()
	require.NoError(t, err)
	require.Equal(t, []string{"from-env", "another"}, keys)
}

func TestWarningWithoutKey(t *testing.T) {
	r := run(t, "--host", "0.0.0.0")
	r.url(t)
	require.Contains(t, r.log.String(), "level=WARN")
	require.Contains(t, r.log.String(), "set --api-key")
	r = run(t, "--host", "0.0.0.0", "--api-key", "k")
	r.url(t)
	require.NotContains(t, r.log.String(), "WARN")
}

func TestModelThatCannotBeLoaded(t *testing.T) {
	var log bytes.Buffer
	open := func(runtime.Options, string, runtime.ModelOptions) (Model, error) {
		return nil, errors.New("no such model")
	}
	code := program(open).Main(t.Context(), []string{"--port", "0", "-q"}, cli.Streams{Out: io.Discard, Err: &log})
	require.Equal(t, cli.ExitFailure, code)
	require.Equal(t, "server: no such model\n", log.String())
}

// The last line says what became of a model that broke.
func TestModelThatBreaks(t *testing.T) {
	r := run(t)
	r.url(t)
	r.model.Break(errors.New("the device is lost"))
	require.Equal(t, cli.ExitFailure, r.end(t))
	<-r.model.closed
	require.True(t, strings.HasSuffix(r.log.String(), "\nserver: the model cannot go on: the device is lost\n"), r.log.String())
}

// It answers while the model is being loaded, and can be stopped then.
func TestLoading(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &lockedBuffer{}
	forever := make(chan struct{})
	defer close(forever)
	open := func(runtime.Options, string, runtime.ModelOptions) (Model, error) {
		<-forever
		return nil, errors.New("too late")
	}
	code := make(chan int, 1)
	go func() {
		code <- program(open).Main(ctx, []string{"--port", "0"}, cli.Streams{Out: io.Discard, Err: log})
	}()
	require.Eventually(t, func() bool { return listening.MatchString(log.String()) }, 10*time.Second, 5*time.Millisecond)
	status, text := get(t, listening.FindStringSubmatch(log.String())[1]+"/health", "")
	require.Equal(t, 503, status)
	require.Contains(t, text, "the model is loading")
	cancel()
	require.Equal(t, cli.ExitOK, <-code)
}

func TestPortInUse(t *testing.T) {
	r := run(t)
	port := r.url(t)[strings.LastIndex(r.url(t), ":")+1:]
	var log bytes.Buffer
	code := program(nil).Main(t.Context(), []string{"--port", port}, cli.Streams{Out: io.Discard, Err: &log})
	require.Equal(t, cli.ExitFailure, code)
	require.Regexp(t, `^server: cannot listen on 127\.0\.0\.1:\d+: .*: choose another --port or --host\n$`, log.String())
}

func TestWrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--port -1":                `--port is -1, want 0 to 65535`,
		"--queue 0":                `--queue is 0`,
		"--max-body 0":             `--max-body is 0`,
		"--grace -1s":              `--grace is -1s`,
		"--keep-alive 0":           `--keep-alive is 0s, want more than 0`,
		"--temp -1":                `temperature`,
		"--tls-cert x":             `--tls-cert and --tls-key are of use together only`,
		"--reasoning maybe":        `want auto, none`,
		"--log-format xml":         `want text, json`,
		"--backend cuda":           `want auto, native, mlx`,
		"--threads -1":             `--threads is -1`,
		"--parallel -1":            `--parallel is -1`,
		"--api-key  --port 0 --no": ``,
	} {
		var log bytes.Buffer
		code := program(nil).Main(t.Context(), strings.Split(args, " "), cli.Streams{Out: io.Discard, Err: &log})
		require.Equal(t, cli.ExitUsage, code, args)
		require.Contains(t, log.String(), want)
	}
	for args, want := range map[string]string{
		"--tls-cert /nowhere --tls-key /nowhere": "--tls-cert and --tls-key cannot be used",
		"--api-key-file /nowhere":                "--api-key-file cannot be read",
		"--api-key-file /dev/null":               "has no key",
	} {
		var log bytes.Buffer
		code := program(nil).Main(t.Context(), strings.Split(args, " "), cli.Streams{Out: io.Discard, Err: &log})
		require.Equal(t, cli.ExitFailure, code, args)
		require.Contains(t, log.String(), want)
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A model by name is downloaded before it is opened, under a server that already answers; one that is not there ends
// the program with the reason.
func TestModelByName(t *testing.T) {
	h := testhub.Start(t)
	h.Add("org/model", &testhub.Model{Files: map[string]*testhub.File{"config.json": testhub.Text("{}"), "model.safetensors": testhub.LFS([]byte("x"))}})
	t.Setenv("HF_ENDPOINT", h.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_TOKEN", testhub.Token)
	t.Setenv("HF_HUB_OFFLINE", "")
	r := run(t, "-m", "org/model")
	r.url(t)
	require.Contains(t, r.log.String(), "msg=downloading model=org/model size=")
	require.FileExists(t, filepath.Join(r.path, "config.json"))
	r.stop()
	require.Equal(t, cli.ExitOK, r.end(t))

	r = run(t, "-m", "org/other", "--offline")
	require.Equal(t, cli.ExitFailure, r.end(t))
	require.Regexp(t, `server: the network must not be used: .*org/other`, r.log.String())
}
