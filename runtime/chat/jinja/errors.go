package jinja

import (
	"errors"
	"fmt"
)

// ErrLimit is the cause of a [RenderError] when the template went over one of
// its [Limits].
var ErrLimit = errors.New("template limit exceeded")

// SyntaxError says why a template's source could not be compiled.
type SyntaxError struct {
	Line    int // 1 is the first line
	Message string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// RenderError says why a template could not be rendered with the values given.
type RenderError struct {
	Line    int // line of the tag that failed
	Message string
	cause   error
}

func (e *RenderError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// Unwrap returns [ErrLimit], the context's error, or nil.
func (e *RenderError) Unwrap() error { return e.cause }

// RaisedError is what the template itself raised through raise_exception: its
// author's message for whoever made the conversation.
type RaisedError struct {
	Line    int
	Message string
}

func (e *RaisedError) Error() string { return e.Message }
