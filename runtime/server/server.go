package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
)

// Server answers requests. It is an http.Handler; [Server.Serve] listens.
type Server struct {
	options Options
	log     *slog.Logger
	router  *mux.Router
	handler http.Handler
	keys    keyRing
	metrics *metrics
	stored  *store

	phase   atomic.Pointer[phase]
	handed  chan struct{} // closed when there is a model
	answers atomic.Int64  // being made or waiting
	newID   func(prefix string) string
	now     func() time.Time
}

// phase is what the server is in: loading, ready or failed.
type phase struct {
	model    *loaded // when ready
	err      error   // when failed
	stopping bool
}

// New makes a server that has no model yet: it answers that it is loading.
func New(o Options) *Server {
	o = o.withDefaults()
	s := &Server{
		options: o, log: o.Logger, keys: newKeyRing(o.Keys), metrics: newMetrics(), stored: newStore(o.StoredResponses, o.StoredBytes),
		handed: make(chan struct{}),
		newID:  func(prefix string) string { return prefix + rand.Text() },
		now:    time.Now,
	}
	s.phase.Store(&phase{})
	s.router = s.routes()
	s.handler = s.observed(s.guarded(s.router))
	return s
}

// Ready hands the model over, once. The server does not close it.
func (s *Server) Ready(m Model) error {
	if m.Tokenizer() == nil {
		return errors.New("the model has no tokenizer, so it cannot be served: put a tokenizer.json beside it")
	}
	s.phase.Store(&phase{model: s.inspect(m)})
	close(s.handed)
	return nil
}

// Fail says that there will be no model, or that it serves nothing more. Requests get the error.
func (s *Server) Fail(err error) { s.phase.Store(&phase{err: err}) }

// stop makes the server refuse new requests.
func (s *Server) stop() {
	p := *s.phase.Load()
	p.stopping = true
	s.phase.Store(&p)
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// model returns the model, or the error that says why there is none.
func (s *Server) model() (*loaded, error) {
	switch p := s.phase.Load(); {
	case p.err != nil:
		return nil, &apiError{status: http.StatusServiceUnavailable, kind: unavailable, code: "failed", message: "the model cannot be used: " + p.err.Error()}
	case p.stopping:
		return nil, errStopping
	case p.model == nil:
		return nil, &apiError{status: http.StatusServiceUnavailable, kind: unavailable, code: "loading", message: "the model is loading", retry: 1}
	default:
		return p.model, nil
	}
}

// open returns the model, and the object of a request to it.
func (s *Server) open(w http.ResponseWriter, r *http.Request) (*loaded, *object, error) {
	l, err := s.model()
	if err != nil {
		return nil, nil, err
	}
	o, err := s.readObject(w, r)
	return l, o, err
}

// admit counts n answers that are about to be made, or refuses them. The caller must call the returned function when they
// are done.
func (s *Server) admit(n int) (done func(), err error) {
	if now := s.answers.Add(int64(n)); now > int64(s.options.MaxAnswers) {
		s.answers.Add(int64(-n))
		return nil, errBusy
	}
	return func() { s.answers.Add(int64(-n)) }, nil
}

// named checks a request's model: it must be this one's id, "default" or nothing.
func (l *loaded) named(o *object) {
	name, _ := o.text("model")
	if name != "" && name != "default" && name != l.id {
		o.fail(&apiError{
			status: http.StatusNotFound, kind: invalidRequest, code: "model_not_found", param: "model",
			message: "the model " + shorten(name) + ` does not exist: want "` + l.id + `", "default" or nothing`,
		})
	}
}

// handlerFunc answers a request, or returns the error to answer with.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// writeJSON answers with an object.
func (s *Server) writeJSON(w http.ResponseWriter, status int, v any) {
	text := encode(v)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.options.WriteTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may be gone: nothing is left to tell it
}

// encode writes v as one line of JSON, with <, > and & as they are. The server's own types can always be written.
func encode(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("server: " + err.Error())
	}
	return []byte(b.String())
}

// abandoned reports whether an error is only that the client went away, or takes nothing more.
func abandoned(r *http.Request, err error) bool {
	return errors.Is(err, errWrite) || errors.Is(err, context.Canceled) && r.Context().Err() != nil
}
