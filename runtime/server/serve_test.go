package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	mlxcel "mlxcel/runtime"
	"mlxcel/runtime/server/servertest"
)

// serving is a server that listens as a program does.
type serving struct {
	*fixture
	address string
	stop    context.CancelFunc
	ended   chan error
}

func serve(t *testing.T, change func(*Options, *servertest.Model)) *serving {
	f := &fixture{model: servertest.New(), log: &logBuffer{}}
	o := Options{}
	if change != nil {
		change(&o, f.model)
	}
	f.model.Init()
	f.Server = New(o)
	require.NoError(t, f.Ready(f.model))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s := &serving{fixture: f, address: l.Addr().String(), stop: cancel, ended: make(chan error, 1)}
	f.url = "http://" + s.address
	go func() { s.ended <- f.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func (s *serving) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	return c
}

// await waits until all answers are over.
func (s *serving) awaitIdle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return s.model.Active() == 0 && s.answers.Load() == 0 }, 5*time.Second, time.Millisecond)
}

func (s *serving) awaitActive(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.model.Active() == n }, 5*time.Second, time.Millisecond)
}

func (s *serving) awaitEnd(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(15 * time.Second):
		require.Fail(t, "the server does not end")
		return nil
	}
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// endless answers go on until someone ends them.
func endless(o *Options, m *servertest.Model) {
	m.Context = 1 << 20
	m.Script = func(prompt string, _ mlxcel.Request) servertest.Answer {
		if strings.Contains(prompt, "short") {
			return servertest.Answer{Text: "right"}
		}
		return servertest.Answer{Text: "ab", Endless: true, PerToken: time.Millisecond}
	}
}

const (
	endlessChat   = `{"messages":[{"role":"user","content":"long"}]}`
	endlessStream = `{"messages":[{"role":"user","content":"long"}],"stream":true}`
	shortChat     = `{"messages":[{"role":"user","content":"short"}]}`
)

// A client that goes away frees its place, at whatever stage, and the others' answers stay right.
func TestClientsThatGoAway(t *testing.T) {
	s := serve(t, endless)
	for _, stage := range []struct {
		name, text string
		read       int // bytes of the answer before the end
	}{
		{"before anything", "", 0},
		{"within the header", "POST /v1/chat/completions HT", 0},
		{"within the body", strings.TrimSuffix(post("/v1/chat/completions", endlessChat), `"}]}`), 0},
		{"while the answer is made", post("/v1/chat/completions", endlessChat), 0},
		{"at the beginning of a stream", post("/v1/chat/completions", endlessStream), 0},
		{"within a stream", post("/v1/chat/completions", endlessStream), 2000},
		{"within a completion", post("/v1/completions", `{"prompt":"x","stream":true,"max_tokens":100000,"n":3}`), 2000},
		{"within a response", post("/v1/responses", `{"input":"x","stream":true}`), 2000},
	} {
		t.Run(stage.name, func(t *testing.T) {
			c := s.dial(t, stage.text)
			if strings.Contains(stage.name, "answer is made") {
				s.awaitActive(t, 1)
			}
			_, err := io.CopyN(io.Discard, c, int64(stage.read))
			require.NoError(t, err)
			require.NoError(t, c.Close())
			s.awaitIdle(t)
			status, text := s.post(t, "/v1/chat/completions", shortChat)
			require.Equal(t, 200, status)
			require.Contains(t, text, `"content":"right"`)
		})
	}
}

// A client that reads nothing does not stall the others, and is dropped after a while.
func TestSlowReader(t *testing.T) {
	s := serve(t, func(o *Options, m *servertest.Model) {
		o.WriteTimeout = 300 * time.Millisecond
		m.Context = 1 << 20
		m.Script = func(prompt string, _ mlxcel.Request) servertest.Answer {
			return servertest.Answer{Text: strings.Repeat("x", 100), Endless: !strings.Contains(prompt, "short")}
		}
	})
	s.dial(t, post("/v1/chat/completions", endlessStream))
	s.awaitActive(t, 1)
	begin := time.Now()
	status, _ := s.post(t, "/v1/chat/completions", shortChat)
	require.Equal(t, 200, status)
	require.Less(t, time.Since(begin), 5*time.Second)
	require.Eventually(t, func() bool { return s.model.Active() == 0 }, 10*time.Second, 10*time.Millisecond)
}

// Headers and bodies that do not come are not waited for.
func TestSlowloris(t *testing.T) {
	s := serve(t, func(o *Options, _ *servertest.Model) {
		o.HeaderTimeout, o.BodyTimeout, o.IdleTimeout = 200*time.Millisecond, 300*time.Millisecond, 400*time.Millisecond
	})
	for _, text := range []string{
		"", "GET /health HTTP/1.1\r\nHost: x\r\nX-A: ", post("/v1/chat/completions", endlessChat)[:100],
		"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		c := s.dial(t, text)
		begin := time.Now()
		_, err := io.Copy(io.Discard, c) // until the server closes
		require.NoError(t, err)
		require.Less(t, time.Since(begin), 5*time.Second, text)
	}
	c := s.dial(t, post("/v1/chat/completions", endlessChat)[:100])
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, 400, response.StatusCode)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "the body cannot be read to its end")
}

// Many connections that are opened and dropped leave nothing behind, and never more than so many are open.
func TestManyConnections(t *testing.T) {
	const most, all = 64, 10_000
	s := serve(t, func(o *Options, _ *servertest.Model) { o.MaxConnections = most })
	status, _ := s.post(t, "/v1/chat/completions", shortChat) // all that stays has started then
	require.Equal(t, 200, status)
	before := runtime.NumGoroutine()
	var group sync.WaitGroup
	work := make(chan int)
	for range 16 {
		group.Go(func() {
			for i := range work {
				c, err := net.Dial("tcp", s.address)
				if err != nil {
					continue // the system may run short of ports
				}
				if i%3 == 0 {
					_, _ = io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\n")
				}
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
				if n := runtime.NumGoroutine(); n > before+16+3*most {
					t.Errorf("%d goroutines", n)
				}
			}
		})
	}
	for i := range all {
		work <- i
	}
	close(work)
	group.Wait()
	status, _ = s.post(t, "/v1/chat/completions", shortChat)
	require.Equal(t, 200, status)
	require.Eventually(t, func() bool {
		http.DefaultClient.CloseIdleConnections()
		return runtime.NumGoroutine() <= before+2
	}, 10*time.Second, 20*time.Millisecond, "goroutines are left")
}

// Only so many connections are served at once; the next one waits.
func TestConnectionsAreBounded(t *testing.T) {
	s := serve(t, func(o *Options, m *servertest.Model) { o.MaxConnections = 2; endless(o, m) })
	first := s.dial(t, post("/v1/chat/completions", endlessStream))
	s.dial(t, post("/v1/chat/completions", endlessStream))
	s.awaitActive(t, 2)
	third := s.dial(t, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.NoError(t, third.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := third.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout")
	require.NoError(t, first.Close())
	require.NoError(t, third.SetReadDeadline(time.Now().Add(5*time.Second)))
	text, err := io.ReadAll(third)
	require.NoError(t, err)
	require.Contains(t, string(text), "200 OK")
}

// Where too many answers are wanted, the next one is refused at once.
func TestQueueIsBounded(t *testing.T) {
	s := serve(t, func(o *Options, m *servertest.Model) { o.MaxAnswers, m.Slots = 3, 1; endless(o, m) })
	running := s.dial(t, post("/v1/chat/completions", strings.TrimSuffix(endlessStream, "}")+`,"n":2}`))
	s.awaitActive(t, 2)
	status, header, text := s.send(t, "POST", "/v1/chat/completions", strings.TrimSuffix(endlessChat, "}")+`,"n":2}`, nil)
	require.Equal(t, 503, status, text)
	require.Equal(t, "1", header.Get("Retry-After"))
	require.Equal(t, "queue_full", parsed(t, text)["error"].(map[string]any)["code"])
	require.NoError(t, running.Close())
	s.awaitIdle(t)
	status, _ = s.post(t, "/v1/chat/completions", shortChat)
	require.Equal(t, 200, status)
}

// One answer's error is not the others'.
func TestErrorAmongOthers(t *testing.T) {
	s := serve(t, func(_ *Options, m *servertest.Model) {
		m.Script = func(prompt string, _ mlxcel.Request) servertest.Answer {
			a := servertest.Answer{Text: "right", PerToken: 5 * time.Millisecond}
			if strings.Contains(prompt, "break") {
				a.Err = errors.New("a step failed")
			}
			return a
		}
	})
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			content, want := "fine", 200
			if i%4 == 1 {
				content, want = "break", 500
			}
			status, text := s.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"`+content+`"}]}`)
			if status != want || want == 200 && !strings.Contains(text, `"content":"right"`) {
				t.Errorf("%s: %d %s", content, status, text)
			}
		})
	}
	group.Wait()
}

// Running requests may end; nothing new is begun.
func TestGracefulStop(t *testing.T) {
	s := serve(t, func(o *Options, m *servertest.Model) {
		o.Grace = 10 * time.Second
		m.Script = func(string, mlxcel.Request) servertest.Answer {
			return servertest.Answer{Text: strings.Repeat("y", 50), PerToken: 5 * time.Millisecond}
		}
	})
	c := s.dial(t, post("/v1/chat/completions", endlessStream))
	s.awaitActive(t, 1)
	s.stop()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, 5*time.Second, 5*time.Millisecond, "still listening")
	status, text := s.recorded("GET", "/health")
	require.Equal(t, 503, status)
	require.Contains(t, text, "the server is stopping")
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, 50, strings.Count(string(answer), `"content":"y"`))
	require.Contains(t, string(answer), "[DONE]")
	require.NoError(t, s.awaitEnd(t))
}

// recorded asks the server without a connection.
func (s *serving) recorded(method, path string) (int, string) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

// Those that do not end in time are told why they get no more.
func TestStopAfterGrace(t *testing.T) {
	s := serve(t, func(o *Options, m *servertest.Model) { o.Grace = 50 * time.Millisecond; endless(o, m) })
	stream := s.dial(t, post("/v1/chat/completions", endlessStream))
	response := s.dial(t, post("/v1/responses", `{"input":"x","stream":true}`))
	whole := s.dial(t, post("/v1/chat/completions", endlessChat))
	s.awaitActive(t, 3)
	s.stop()
	for c, want := range map[net.Conn]string{stream: `data: {"error":{"message":"the server is stopping"`, response: "event: response.failed", whole: "503 Service Unavailable"} {
		text, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Contains(t, string(text), want)
	}
	require.NoError(t, s.awaitEnd(t))
	s.awaitIdle(t)
}

// When the model is lost, all who wait get the error, and the server ends with it.
func TestBrokenModel(t *testing.T) {
	s := serve(t, endless)
	stream := s.dial(t, post("/v1/chat/completions", endlessStream))
	whole := s.dial(t, post("/v1/chat/completions", endlessChat))
	s.awaitActive(t, 2)
	s.model.Break(errors.New("the device fell off the bus"))
	for _, c := range []net.Conn{stream, whole} {
		text, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Contains(t, string(text), "the device fell off the bus")
	}
	require.ErrorContains(t, s.awaitEnd(t), "the model cannot go on: the device fell off the bus")
	status, text := s.recorded("GET", "/health")
	require.Equal(t, 503, status)
	require.Contains(t, text, "fell off the bus")
}

func TestTLS(t *testing.T) {
	pair := httptest.NewUnstartedServer(nil)
	pair.StartTLS()
	defer pair.Close()
	s := serve(t, func(o *Options, _ *servertest.Model) { o.TLS = &tls.Config{Certificates: pair.TLS.Certificates} })
	client := pair.Client()
	defer client.CloseIdleConnections()
	for _, stream := range []string{"false", "true"} {
		response, err := client.Post("https://"+s.address+"/v1/chat/completions", "", strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"stream":`+stream+`}`))
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, 200, response.StatusCode)
		require.Contains(t, string(text), `"finish_reason":"stop"`)
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1": true, "::1": true, "127.8.8.8": true, "0.0.0.0": false, "::": false, "192.0.2.1": false} {
		require.Equal(t, want, IsLoopback(&net.TCPAddr{IP: net.ParseIP(address)}), address)
	}
}
