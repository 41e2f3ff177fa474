package jinja

import (
	"context"
	"fmt"
	"time"
)

// renderer is the state of one rendering.
type renderer struct {
	ctx    context.Context
	now    time.Time
	limits Limits
	steps  int // used so far, as the next two
	memory int
	calls  int // macros and recursive loops being run

	out   *writer
	scope *scope
	line  int // of what is being run
}

// scope holds the names of a block. {% if %} has none of its own: a set in it
// is seen after it; a set in a loop or macro is not.
type scope struct {
	vars   map[string]any
	parent *scope
}

func newRenderer(ctx context.Context, vars map[string]any, opts Options) *renderer {
	r := &renderer{ctx: ctx, now: opts.Now, limits: opts.Limits.withDefaults(), line: 1}
	if r.now.IsZero() {
		r.now = time.Now()
	}
	r.out = &writer{r: r}
	r.scope = &scope{parent: &scope{vars: vars}}
	return r
}

// lookup finds a name's value: in the scopes from the inside out, then among
// the global functions.
func (r *renderer) lookup(name string) any {
	hops := 0
	for s := r.scope; s != nil; s = s.parent {
		if hops++; hops%8 == 0 {
			r.spend(1)
		}
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	if f, ok := globals[name]; ok {
		return f
	}
	return &undefined{"'" + name + "' is undefined"}
}

func (r *renderer) set(name string, v any) {
	if r.scope.vars == nil {
		r.scope.vars = map[string]any{}
	}
	r.scope.vars[name] = v
}

// within runs f in the scope and comes back to the present one.
func (r *renderer) within(s *scope, f func()) {
	old := r.scope
	r.scope = s
	f()
	r.scope = old
}

// capture returns the text that f writes.
func (r *renderer) capture(f func()) string {
	old := r.out
	r.out = &writer{r: r}
	f()
	text := r.out.String()
	r.out = old
	return text
}

// Accounting. Whatever takes time says so with spend, whatever takes memory
// with grow, before it does it if it may be much.

// spend counts n steps.
func (r *renderer) spend(n int) {
	before := r.steps
	r.steps += n
	if r.steps > r.limits.Steps || r.steps < before {
		r.limit("more than %d steps", r.limits.Steps)
	}
	if before/1024 != r.steps/1024 {
		if err := r.ctx.Err(); err != nil {
			panic(&RenderError{Line: r.line, Message: "rendering was stopped: " + err.Error(), cause: err})
		}
	}
}

// grow counts n bytes.
func (r *renderer) grow(n int) {
	before := r.memory
	r.memory += n
	if r.memory > r.limits.Memory || r.memory < before {
		r.limit("more than %d bytes of values", r.limits.Memory)
	}
}

// growTimes counts count items of the given size; neither may be negative.
func (r *renderer) growTimes(count, size int) {
	if size > 0 && count > r.limits.Memory/size {
		r.limit("more than %d bytes of values", r.limits.Memory)
	}
	r.grow(count * size)
}

// itemBytes is what one item of a list takes.
const itemBytes = 16

// touch spends the steps for an operation that may read values whole.
func (r *renderer) touch(values ...any) {
	for _, v := range values {
		switch x := v.(type) {
		case string:
			r.spend(len(x) / 64)
		case *List:
			r.spend(len(x.items) / 8)
		case *Dict:
			r.spend(len(x.entries) / 8)
		}
	}
}

// made counts the memory of an operation's result, and returns it. No string
// may be longer than the output, so an operation that makes it a few times
// longer is caught in time.
func (r *renderer) made(v any) any {
	switch x := v.(type) {
	case string:
		r.grow(len(x))
		if len(x) > r.limits.Output {
			r.limit("text is longer than %d bytes", r.limits.Output)
		}
	case *List:
		r.growTimes(len(x.items), itemBytes)
	case *Dict:
		r.growTimes(len(x.entries), 6*itemBytes)
	}
	return v
}

// enterCall guards against endless recursion; the caller leaves with r.calls--.
func (r *renderer) enterCall() {
	if r.calls++; r.calls > r.limits.Depth {
		r.limit("calls are nested more than %d deep", r.limits.Depth)
	}
}

// fail ends the rendering. The panic is caught in RenderContext.
func (r *renderer) fail(format string, a ...any) {
	panic(&RenderError{Line: r.line, Message: fmt.Sprintf(format, a...)})
}

func (r *renderer) limit(format string, a ...any) {
	panic(&RenderError{Line: r.line, Message: ErrLimit.Error() + ": " + fmt.Sprintf(format, a...), cause: ErrLimit})
}

// mustDefine fails if a value that is about to be used is undefined.
func (r *renderer) mustDefine(values ...any) {
	for _, v := range values {
		if u, ok := v.(*undefined); ok {
			r.fail("%s", u.hint)
		}
	}
}
