package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"mlxcel/runtime"
)

// exchange is what is found out about a request while it is answered, for the log and the metrics.
type exchange struct {
	id      string
	route   string
	status  int
	bytes   int64
	gone    bool // the client went away
	answers int
	usage   usage
	first   time.Duration // to the first token; 0: there was none
}

type exchangeKey struct{}

// exchangeOf returns the exchange of a request that came through observed.
func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// observed gives each request an id, counts it and writes a line about it: never its text, nor its path, which may hold
// what a user typed. A panic, which is a bug, is answered as an error.
func (s *Server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := s.now()
		x := &exchange{id: requestID(r), route: "unknown"}
		if x.id == "" {
			x.id = s.newID("req_")
		}
		w.Header().Set("X-Request-Id", x.id)
		writer := &recorder{ResponseWriter: w, exchange: x}
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		defer func() {
			if bug := recover(); bug != nil {
				if bug == http.ErrAbortHandler {
					panic(bug)
				}
				s.log.Error("internal error", "request", x.id, "error", fmt.Sprint(bug), "stack", string(debug.Stack()))
				if x.status == 0 {
					s.writeError(writer, fmt.Errorf("internal error: please report this bug with the log of request %s", x.id))
				}
			}
			s.report(r.Context(), x, r.Method, s.now().Sub(begin))
		}()
		next.ServeHTTP(writer, r)
	})
}

func (s *Server) report(ctx context.Context, x *exchange, method string, took time.Duration) {
	if x.gone {
		x.status = statusClientGone
	}
	if x.status == 0 {
		x.status = http.StatusOK
	}
	s.metrics.requests.add(1, x.route, fmt.Sprint(x.status))
	level := slog.LevelInfo
	switch {
	case x.route == "/health" || x.route == "/v1/health" || x.route == "/metrics":
		level = slog.LevelDebug // asked for every few seconds, and 503 is news to nobody who reads the log
	case x.status >= 500:
		level = slog.LevelError
	}
	attributes := []slog.Attr{
		slog.String("request", x.id), slog.String("method", method), slog.String("route", x.route), slog.Int("status", x.status),
		slog.Duration("took", took.Round(time.Microsecond)), slog.Int64("bytes", x.bytes),
	}
	if x.answers > 0 {
		attributes = append(attributes, slog.Int("prompt_tokens", x.usage.PromptTokens), slog.Int("cached_tokens", x.usage.PromptDetails.CachedTokens),
			slog.Int("tokens", x.usage.CompletionTokens), slog.Duration("first_token", x.first.Round(time.Microsecond)))
	}
	s.log.LogAttrs(context.WithoutCancel(ctx), level, "request", attributes...)
}

// requestID is the id that a client gave its request, if it is one that may stand in a log.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if len(id) > 64 {
		return ""
	}
	for _, c := range id {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return ""
		}
	}
	return id
}

// recorder notes what is answered.
type recorder struct {
	http.ResponseWriter
	exchange *exchange
}

func (w *recorder) WriteHeader(status int) {
	if w.exchange.status == 0 {
		w.exchange.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.exchange.status == 0 {
		w.exchange.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.exchange.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController find what it needs.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// measured counts an answer that has come to its end.
func (s *Server) measured(summary *runtime.Summary, finish string) {
	m := s.metrics
	m.answers.add(1, finish)
	m.promptTokens.add(float64(summary.PromptTokens))
	m.cachedTokens.add(float64(summary.CachedTokens))
	m.tokens.add(float64(summary.Tokens))
	m.queueTime.observe(summary.Wait.Seconds())
	if summary.Tokens > 0 {
		m.firstToken.observe((summary.Wait + summary.Prompt).Seconds())
	}
	m.answerTime.observe((summary.Wait + summary.Prompt + summary.Decode).Seconds())
}
