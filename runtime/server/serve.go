package server

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// afterBreak is how long requests have to end after the model broke: each of them has got an error.
const afterBreak = 5 * time.Second

// Serve answers what comes through l until ctx ends or the model breaks, and closes l. When ctx ends, running requests
// have Options.Grace to come to their end; the others are told that the server stops. The error is nil after ctx ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(errStopping)
	h := &http.Server{
		Handler: s, BaseContext: func(net.Listener) context.Context { return base }, TLSConfig: s.options.TLS,
		ReadHeaderTimeout: s.options.HeaderTimeout, IdleTimeout: s.options.IdleTimeout, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(connectionErrors{s.log}, "", 0),
	}
	l = &boundedListener{Listener: l, free: make(chan struct{}, s.options.MaxConnections), closed: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		if s.options.TLS != nil {
			ended <- h.ServeTLS(l, "", "")
		} else {
			ended <- h.Serve(l)
		}
	}()
	var failure error
	grace := s.options.Grace
	select {
	case err := <-ended:
		return fmt.Errorf("no connections can be accepted any more: %w", err)
	case failure = <-s.broken(base):
		s.Fail(failure)
		grace = afterBreak
	case <-ctx.Done():
		s.stop()
	}
	s.log.Info("stopping", "open_answers", s.answers.Load(), "grace", grace)
	if err := shutdown(h, grace); err == nil {
		return failure
	}
	cancel(errStopping) // those that are left get an error
	if err := shutdown(h, time.Second); err != nil {
		_ = h.Close() // whoever is left takes nothing
	}
	return failure
}

func shutdown(h *http.Server, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return h.Shutdown(ctx)
}

// broken is sent the error of the model, should it break before ctx ends.
func (s *Server) broken(ctx context.Context) <-chan error {
	failures := make(chan error, 1)
	go func() {
		m := s.awaitModel(ctx)
		if m == nil {
			return
		}
		select {
		case <-m.Broken():
			failures <- fmt.Errorf("the model cannot go on: %w", m.Err())
		case <-ctx.Done():
		}
	}()
	return failures
}

// awaitModel returns the model when it was handed over, nil if ctx ended before.
func (s *Server) awaitModel(ctx context.Context) Model {
	select {
	case <-s.handed:
		return s.phase.Load().model
	case <-ctx.Done():
		return nil
	}
}

// boundedListener lets only so many connections be open at once. More wait in the system's queue.
type boundedListener struct {
	net.Listener
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &boundedConn{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
}

func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}

// connectionErrors takes what net/http has to say about connections, which is about clients that misbehave.
type connectionErrors struct{ log *slog.Logger }

func (c connectionErrors) Write(text []byte) (int, error) {
	c.log.Debug("connection", "error", strings.TrimSpace(string(text)))
	return len(text), nil
}

// IsLoopback reports whether an address that was listened on can be reached from this machine only.
func IsLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
