package server

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"time"
)

// errWrite says that nothing can be written to a client: it is gone, or takes nothing for too long.
var errWrite = errors.New("the client takes nothing more")

// events writes an answer as server-sent events, each at once.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration // for a client to take an event
	begun   bool
}

func (s *Server) newEvents(w http.ResponseWriter) *events {
	return &events{w: w, control: http.NewResponseController(w), timeout: s.options.WriteTimeout}
}

// send writes an event with v as JSON. Only the Responses API names its events.
func (e *events) send(name string, v any) error {
	return e.write(appendEvent(nil, name, bytes.TrimRight(encode(v), "\n")))
}

// done writes the event that ends a stream in OpenAI's older APIs.
func (e *events) done() error { return e.write([]byte("data: [DONE]\n\n")) }

// comment writes a line that clients skip, so that nothing between them and the server takes the connection for dead.
func (e *events) comment() error { return e.write([]byte(": keep-alive\n\n")) }

func (e *events) write(text []byte) error {
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // or nginx keeps events back
		e.w.WriteHeader(http.StatusOK)
	}
	// Where there are no deadlines, as in tests, there is nobody to wait for either.
	_ = e.control.SetWriteDeadline(time.Now().Add(e.timeout))
	if _, err := e.w.Write(text); err != nil {
		return errWrite
	}
	if err := e.control.Flush(); err != nil {
		return errWrite
	}
	return nil
}

// appendEvent appends an event. Line ends within data become several data lines, which clients put together again with
// line feeds; in a name, they are left out.
func appendEvent(b []byte, name string, data []byte) []byte {
	if name != "" {
		b = append(b, "event: "...)
		b = append(b, strings.NewReplacer("\r", "", "\n", "").Replace(name)...)
		b = append(b, '\n')
	}
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b = append(b, "data: "...)
		b = append(b, line...)
		b = append(b, '\n')
	}
	return append(b, '\n')
}
