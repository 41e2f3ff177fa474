package jinja

import (
	"context"
	"time"
)

// Template is a compiled template. It never changes: any number of goroutines
// may render it at once.
type Template struct {
	body []statement
}

// Limits bound what one rendering may use. A field that is zero takes the
// value of [DefaultLimits].
type Limits struct {
	// Steps counts evaluated statements and expressions, loop iterations, and
	// a share for long strings and lists that an operation reads.
	Steps int
	// Memory is the sum, in bytes, of all strings and lists made on the way.
	Memory int
	// Output is the largest length, in bytes, of the text rendered, and of any
	// text on the way.
	Output int
	// Depth is how deep macros and recursive loops may call each other.
	Depth int
}

// DefaultLimits is ample for real conversations (a few hundred thousand tokens
// with tools take about a hundredth of it) and stops a hostile template within
// a few seconds.
func DefaultLimits() Limits {
	return Limits{Steps: 2_000_000, Memory: 1 << 29, Output: 64 << 20, Depth: 200}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct {
		have *int
		want int
	}{{&l.Steps, d.Steps}, {&l.Memory, d.Memory}, {&l.Output, d.Output}, {&l.Depth, d.Depth}} {
		if *f.have <= 0 {
			*f.have = f.want
		}
	}
	return l
}

// Options change how a template is rendered.
type Options struct {
	// Now is what strftime_now tells; the zero time stands for the real time.
	Now time.Time
	// Limits guard against templates that would never end.
	Limits Limits
}

// maxSource bounds a template's source, in bytes. Real ones have 1 to 100 KB.
const maxSource = 1 << 20

// Compile reads a template. The error is a [*SyntaxError].
func Compile(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, &SyntaxError{Line: 1, Message: "template is longer than 1 MiB"}
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *SyntaxError:
			t, err = nil, e
		default:
			panic(e)
		}
	}()
	p := &parser{segments: splitSource(source)}
	return &Template{body: p.template()}, nil
}

// Render renders the template with the default options. The variables may be
// any Go values that [ValueOf] takes.
func (t *Template) Render(vars map[string]any) (string, error) {
	return t.RenderContext(context.Background(), vars, Options{})
}

// RenderContext renders the template and stops early when ctx ends. The error
// is a [*RaisedError] when the template called raise_exception and a
// [*RenderError] otherwise.
func (t *Template) RenderContext(ctx context.Context, vars map[string]any, opts Options) (text string, err error) {
	values := make(map[string]any, len(vars))
	for name, v := range vars {
		if values[name], err = ValueOf(v); err != nil {
			return "", &RenderError{Line: 1, Message: "variable " + name + ": " + err.Error(), cause: err}
		}
	}
	r := newRenderer(ctx, values, opts)
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *RenderError:
			text, err = "", e
		case *RaisedError:
			text, err = "", e
		default:
			panic(e)
		}
	}()
	r.run(t.body)
	return r.out.String(), nil
}
