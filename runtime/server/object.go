package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// object is a JSON object whose fields are asked for one by one. What is wrong with a field is kept, the first of all;
// so a handler asks for all fields and looks at the error once. A null counts as a field that is not there.
type object struct {
	path   string // names the object in errors: "messages[2]"; "" for the body itself
	fields map[string]json.RawMessage
	err    *error // of all objects of a request
}

// readObject reads the body of a request. The content type is not looked at: it must be a JSON object anyway.
func (s *Server) readObject(w http.ResponseWriter, r *http.Request) (*object, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(s.options.BodyTimeout)) // a connection that cannot has no timeouts at all
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.options.MaxBody))
	if err != nil {
		// The deadline stays: net/http would wait for the rest of the body without it.
		w.Header().Set("Connection", "close")
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, badRequest(http.StatusRequestEntityTooLarge, "request_too_large", "the body is larger than %d bytes", tooLarge.Limit)
		}
		return nil, badRequest(http.StatusBadRequest, "incomplete_body", "the body cannot be read to its end")
	}
	_ = control.SetReadDeadline(time.Time{})
	return parseObject(body)
}

// parseObject parses a whole body.
func parseObject(body []byte) (*object, error) {
	const what = "want a JSON object"
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0:
		return nil, badRequest(http.StatusBadRequest, "invalid_json", "the body is empty: %s", what)
	case !json.Valid(body):
		var ignored any
		return nil, badRequest(http.StatusBadRequest, "invalid_json", "the body is not JSON: %v: %s", json.Unmarshal(body, &ignored), what)
	case body[0] != '{':
		return nil, badRequest(http.StatusBadRequest, "invalid_json", "the body is %s: %s", kindOf(body), what)
	}
	o := &object{err: new(error)}
	if err := json.Unmarshal(body, &o.fields); err != nil {
		return nil, badRequest(http.StatusBadRequest, "invalid_json", "the body cannot be read: %v", err)
	}
	return o, nil
}

// Err is the first error.
func (o *object) Err() error { return *o.err }

func (o *object) fail(err error) {
	if *o.err == nil {
		*o.err = err
	}
}

func (o *object) name(field string) string {
	if o.path == "" {
		return field
	}
	return o.path + "." + field
}

// raw returns a field as it stands, nil if it is missing or null.
func (o *object) raw(field string) json.RawMessage {
	v := o.fields[field]
	if string(v) == "null" {
		return nil
	}
	return v
}

// has reports whether a field is there and not null.
func (o *object) has(field string) bool { return o.raw(field) != nil }

// bad keeps an error about a field.
func (o *object) bad(field, format string, args ...any) {
	o.fail(badField(o.name(field), format, args...))
}

// wrongType keeps the error that a field is not what was expected.
func (o *object) wrongType(field, want string) {
	o.bad(field, "want %s, got %s", want, kindOf(o.fields[field]))
}

// text returns a string field and whether it is there.
func (o *object) text(field string) (string, bool) {
	v := o.raw(field)
	if v == nil {
		return "", false
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		o.wrongType(field, "a string")
		return "", false
	}
	return s, true
}

// required is text for a field that must be there.
func (o *object) required(field string) string {
	s, ok := o.text(field)
	if !ok {
		o.missing(field, "a string")
	}
	return s
}

// missing keeps the error that a field is not there; it does nothing if there is another error about it.
func (o *object) missing(field, want string) {
	if *o.err == nil {
		e := badField(o.name(field), "is missing: want %s", want)
		e.code = "missing_required_parameter"
		o.fail(e)
	}
}

// word returns a string field that must be one of a few words, otherwise if it is not there.
func (o *object) word(field, otherwise string, allowed ...string) string {
	s, ok := o.text(field)
	if !ok {
		return otherwise
	}
	for _, a := range allowed {
		if s == a {
			return s
		}
	}
	o.bad(field, "want one of %s, got %s", strings.Join(quoteAll(allowed), ", "), shorten(s))
	return otherwise
}

// flag returns a boolean field.
func (o *object) flag(field string, otherwise bool) bool {
	v := o.raw(field)
	if v == nil {
		return otherwise
	}
	switch string(v) {
	case "true":
		return true
	case "false":
		return false
	}
	o.wrongType(field, "true or false")
	return otherwise
}

// number returns a number within bounds.
func (o *object) number(field string, otherwise, low, high float64) float64 {
	v := o.raw(field)
	if v == nil {
		return otherwise
	}
	var f float64
	if json.Unmarshal(v, &f) != nil {
		o.wrongType(field, "a number")
		return otherwise
	}
	if f < low || f > high {
		o.bad(field, "want a number from %g to %g, got %s", low, high, shorten(string(v)))
		return otherwise
	}
	return f
}

// integer returns a whole number within bounds, and whether it is there. 5.0 and 5e0 are as whole as 5.
func (o *object) integer(field string, low, high int64) (int64, bool) {
	v := o.raw(field)
	if v == nil {
		return 0, false
	}
	n, ok := wholeNumber(v)
	switch {
	case !ok && kindOf(v) == "a number":
		o.bad(field, "want a whole number from %d to %d, got %s", low, high, shorten(string(v)))
	case !ok:
		o.wrongType(field, "a whole number")
	case n < low || n > high:
		o.bad(field, "want a whole number from %d to %d, got %d", low, high, n)
	default:
		return n, true
	}
	return 0, false
}

func wholeNumber(v json.RawMessage) (int64, bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	var f float64
	if json.Unmarshal(v, &f) != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// object returns a field that is an object, nil if it is not there.
func (o *object) object(field string) *object {
	v := o.raw(field)
	if v == nil {
		return nil
	}
	return o.asObject(field, v)
}

// asObject reads v, which stands at a field or at an index of one.
func (o *object) asObject(field string, v json.RawMessage) *object {
	inner := &object{path: o.name(field), err: o.err}
	if json.Unmarshal(v, &inner.fields) != nil || inner.fields == nil {
		o.bad(field, "want an object, got %s", kindOf(v))
		return nil
	}
	return inner
}

// list returns the elements of a field that is an array of at most so many; nil if it is not there.
func (o *object) list(field string, most int) []json.RawMessage {
	v := o.raw(field)
	if v == nil {
		return nil
	}
	if v[0] != '[' {
		o.wrongType(field, "an array")
		return nil
	}
	list, err := elements(v, most)
	if err != nil {
		o.bad(field, "%v", err)
		return nil
	}
	return list
}

// elements takes an array apart. It stops where there are too many, before they take memory.
func elements(v json.RawMessage, most int) ([]json.RawMessage, error) {
	list := []json.RawMessage{}
	d := json.NewDecoder(bytes.NewReader(v))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		if len(list) == most {
			return nil, errors.New("has more than " + strconv.Itoa(most) + " elements, which is the most")
		}
		var e json.RawMessage
		if err := d.Decode(&e); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// at names an element of a field.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// kindOf names what a JSON value is.
func kindOf(v json.RawMessage) string {
	if len(v) == 0 {
		return "nothing"
	}
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func quoteAll(words []string) []string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return quoted
}

// shorten quotes what a client sent, so that errors stay short.
func shorten(s string) string {
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return strconv.Quote(s)
}
