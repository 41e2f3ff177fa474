package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"mlxcel/runtime"
	"mlxcel/runtime/chat"
)

// apiError is an answer that is an error, in OpenAI's form.
type apiError struct {
	status  int
	kind    string // "type" in JSON
	code    string // "": null
	param   string // the field that is wrong; "": null
	message string
	retry   int // seconds after which it is worth to try again, 0: not said
}

func (e *apiError) Error() string { return e.message }

// MarshalJSON writes the object that stands under "error".
func (e *apiError) MarshalJSON() ([]byte, error) {
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return json.Marshal(struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   any    `json:"param"`
		Code    any    `json:"code"`
	}{e.message, e.kind, orNull(e.param), orNull(e.code)})
}

// Types of errors, as OpenAI names them.
const (
	invalidRequest = "invalid_request_error"
	authentication = "authentication_error"
	permission     = "permission_error"
	serverError    = "server_error"
	unavailable    = "unavailable_error"
)

// badField says that a field is wrong and what was expected.
func badField(param, format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusBadRequest, kind: invalidRequest, code: "invalid_value", param: param,
		message: fmt.Sprintf("%s: %s", param, fmt.Sprintf(format, args...)),
	}
}

// notYet refuses a field or value that has a meaning which this server cannot give it.
func notYet(param, format string, args ...any) *apiError {
	e := badField(param, format, args...)
	e.code = "unsupported_value"
	return e
}

// badRequest says what is wrong with a request as a whole.
func badRequest(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, kind: invalidRequest, code: code, message: fmt.Sprintf(format, args...)}
}

var (
	errStopping = &apiError{status: http.StatusServiceUnavailable, kind: unavailable, code: "stopping", message: "the server is stopping", retry: 5}
	errBusy     = &apiError{status: http.StatusServiceUnavailable, kind: unavailable, code: "queue_full", message: "too many requests are waiting: try again later", retry: 1}
)

// statusClientGone is what logs and metrics show for a request whose client went away.
const statusClientGone = 499

// refused is an error that the model gave before it began with a request.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// asAPIError says what a client is told about an error.
func asAPIError(err error) *apiError {
	var api *apiError
	var template *chat.TemplateError
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, runtime.ErrClosed):
		return errStopping
	case errors.Is(err, runtime.ErrQueueFull):
		return errBusy
	case errors.Is(err, runtime.ErrPromptTooLong):
		return badRequest(http.StatusBadRequest, "context_length_exceeded", "%v", err)
	case errors.As(err, &template):
		return badField("messages", "the model's chat template refuses them: %v", template)
	case errors.Is(err, chat.ErrNoTemplate):
		return badField("messages", "the model has no chat template, so it cannot chat: use /v1/completions")
	case errors.Is(err, context.Canceled):
		return &apiError{status: statusClientGone, kind: serverError, code: "cancelled", message: "the request was cancelled"}
	case errors.As(err, &refused{}):
		return badRequest(http.StatusBadRequest, "invalid_value", "the model refuses the request: %v", err)
	}
	return &apiError{status: http.StatusInternalServerError, kind: serverError, code: "internal_error", message: err.Error()}
}

// writeError answers with an error object.
func (s *Server) writeError(w http.ResponseWriter, err error) {
	e := asAPIError(err)
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.retry))
	}
	s.writeJSON(w, e.status, map[string]any{"error": e})
}
