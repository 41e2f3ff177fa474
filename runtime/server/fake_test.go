package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/server/servertest"
)

// fixture is a server with a fake model, that listens.
type fixture struct {
	*Server
	model *servertest.Model
	url   string
	log   *logBuffer
}

// start starts a server. Its ids count, and its clock stands still, so that answers are the same every time.
func start(t *testing.T, change func(*Options, *servertest.Model)) *fixture {
	f := &fixture{model: servertest.New(), log: &logBuffer{}}
	o := Options{
		Metrics: true, Page: true, Build: "test", Sampling: &runtime.Sampling{Temperature: 1, TopP: 1},
		Logger: slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&o, f.model)
	}
	f.model.Init()
	f.Server = New(o)
	f.deterministic()
	require.NoError(t, f.Ready(f.model))
	h := httptest.NewServer(f.Server)
	t.Cleanup(h.Close)
	f.url = h.URL
	return f
}

func (f *fixture) deterministic() {
	var mu sync.Mutex
	counts := map[string]int{}
	f.newID = func(prefix string) string {
		mu.Lock()
		defer mu.Unlock()
		counts[prefix]++
		n := strconv.Itoa(counts[prefix])
		if prefix == "" {
			return strings.Repeat("0", 9-len(n)) + n
		}
		return prefix + n
	}
	f.now = func() time.Time { return time.Unix(1_800_000_000, 0) }
}

// post sends a body and returns the status and the answer.
func (f *fixture) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	status, _, text := f.send(t, http.MethodPost, path, body, nil)
	return status, text
}

func (f *fixture) get(t *testing.T, path string) (int, string) {
	t.Helper()
	status, _, text := f.send(t, http.MethodGet, path, "", nil)
	return status, text
}

func (f *fixture) send(t *testing.T, method, path, body string, header http.Header) (int, http.Header, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	require.NoError(t, err)
	for k, v := range header {
		r.Header[k] = v
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(text)
}

// object parses an answer.
func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// event is an event of a stream.
type event struct {
	name string
	data string
}

// readEvents reads a stream as a browser does.
func readEvents(t *testing.T, text string) []event {
	t.Helper()
	var events []event
	var e event
	var data []string
	for line := range strings.SplitSeq(text, "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				e.data = strings.Join(data, "\n")
				events = append(events, e)
			}
			e, data = event{}, nil
		case field == "": // a comment
		case field == "event":
			e.name = value
		case field == "data":
			data = append(data, value)
		default:
			require.Fail(t, "unknown field", "%q", line)
		}
	}
	return events
}

// logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// says makes a model always give one answer.
func says(text string) func(*Options, *servertest.Model) {
	return func(_ *Options, m *servertest.Model) {
		m.Script = func(string, runtime.Request) servertest.Answer { return servertest.Answer{Text: text} }
	}
}
