package jinja

import (
	"slices"
	"strings"
)

// arguments are the values of one call.
type arguments struct {
	pos   []any
	named []namedArg
}

type namedArg struct {
	name  string
	value any
}

func (in arguments) get(name string) (any, bool) {
	for _, a := range in.named {
		if a.name == name {
			return a.value, true
		}
	}
	return nil, false
}

func (a *argExprs) eval(r *renderer) (in arguments) {
	for _, e := range a.pos {
		in.pos = append(in.pos, r.eval(e))
	}
	if a.star != nil {
		items := r.iterate(r.eval(a.star))
		r.growTimes(len(items), itemBytes)
		in.pos = append(in.pos, items...)
	}
	for i, e := range a.values {
		in.named = append(in.named, namedArg{a.names[i], r.eval(e)})
	}
	if a.stars == nil {
		return in
	}
	d, ok := r.eval(a.stars).(*Dict)
	if !ok {
		r.fail("argument after ** must be a mapping")
	}
	r.growTimes(len(d.entries), 2*itemBytes)
	for _, e := range d.entries {
		name, ok := e.key.(string)
		if _, twice := in.get(name); twice || !ok {
			r.fail("argument %s after ** is no string or given twice", r.repr(e.key))
		}
		in.named = append(in.named, namedArg{name, e.value})
	}
	return in
}

func (r *renderer) call(f any, in arguments) any {
	switch f := f.(type) {
	case *callable:
		return f.call(r, in)
	case *macro:
		return f.call(r, in)
	case *loop:
		if f.recurse == nil {
			r.fail("the loop must have the 'recursive' marker to be called recursively")
		}
		if len(in.pos) != 1 {
			r.fail("loop() takes one argument")
		}
		return f.recurse(in.pos[0])
	}
	r.mustDefine(f)
	r.fail("'%s' object is not callable", typeName(f))
	return nil
}

// macro is a macro with the scope that it was defined in.
type macro struct {
	node  *macroNode
	scope *scope
}

func (m *macro) attr(_ *renderer, name string) (any, bool) {
	switch name {
	case "name":
		return m.node.name, true
	case "arguments":
		names := newTuple()
		for _, p := range m.node.params {
			names.items = append(names.items, p)
		}
		return names, true
	case "catch_kwargs":
		return m.node.usesKwargs, true
	case "catch_varargs":
		return m.node.usesVarargs, true
	case "caller":
		return m.node.usesCaller, true
	}
	return nil, false
}

func (m *macro) String() string { return "<Macro '" + m.node.name + "'>" }

func (m *macro) call(r *renderer, in arguments) any {
	r.enterCall()
	r.spend(4)
	line := r.line
	var text string
	r.within(&scope{vars: map[string]any{}, parent: m.scope}, func() {
		m.bind(r, in)
		text = r.capture(func() { r.run(m.node.body) })
	})
	r.line = line
	r.calls--
	return text
}

// bind sets the macro's parameters in the current scope.
func (m *macro) bind(r *renderer, in arguments) {
	n := m.node
	rest := slices.Clone(in.named)
	takeNamed := func(name string) (any, bool) {
		for i, a := range rest {
			if a.name == name {
				rest = slices.Delete(rest, i, i+1)
				return a.value, true
			}
		}
		return nil, false
	}
	noDefault := len(n.params) - len(n.defaults)
	for i, name := range n.params {
		var v any
		if i < len(in.pos) {
			v = in.pos[i]
		} else if given, ok := takeNamed(name); ok {
			v = given
		} else if i >= noDefault {
			v = r.eval(n.defaults[i-noDefault]) // sees the parameters before it
		} else {
			v = &undefined{"parameter '" + name + "' was not provided"}
		}
		r.set(name, v)
	}
	if n.usesCaller && !slices.Contains(n.params, "caller") {
		caller, ok := takeNamed("caller")
		if !ok {
			caller = &undefined{"No caller defined"}
		}
		r.set("caller", caller)
	}
	if n.usesKwargs {
		d := NewDict()
		for _, a := range rest {
			d.Set(a.name, a.value)
		}
		r.set("kwargs", d)
	} else if len(rest) > 0 {
		r.fail("macro '%s' takes no keyword argument '%s'", n.name, rest[0].name)
	}
	extra := in.pos[min(len(in.pos), len(n.params)):]
	if n.usesVarargs {
		r.set("varargs", newTuple(extra...))
	} else if len(extra) > 0 {
		r.fail("macro '%s' takes not more than %d argument(s)", n.name, len(n.params))
	}
}

// signature is the parameter list of a built-in: names with spaces between;
// "!" marks one that must be given.
type signature struct {
	names    []string
	required int
}

func parseSignature(spec string) signature {
	var s signature
	for _, name := range strings.Fields(spec) {
		name, required := strings.CutSuffix(name, "!")
		if required {
			s.required++
		}
		s.names = append(s.names, name)
	}
	return s
}

// boundArgs are arguments sorted into a signature.
type boundArgs struct {
	r      *renderer
	values []any
	given  []bool
}

func (s signature) bind(r *renderer, function string, in arguments) boundArgs {
	a := boundArgs{r, make([]any, len(s.names)), make([]bool, len(s.names))}
	if len(in.pos) > len(s.names) {
		r.fail("%s() takes at most %d argument(s), %d given", function, len(s.names), len(in.pos))
	}
	for i, v := range in.pos {
		a.values[i], a.given[i] = v, true
	}
	for _, n := range in.named {
		i := slices.Index(s.names, n.name)
		if i < 0 {
			r.fail("%s() got an unexpected keyword argument '%s'", function, n.name)
		}
		if a.given[i] {
			r.fail("%s() got multiple values for argument '%s'", function, n.name)
		}
		a.values[i], a.given[i] = n.value, true
	}
	for i := range s.required {
		if !a.given[i] {
			r.fail("%s() needs the argument '%s'", function, s.names[i])
		}
	}
	return a
}

// value returns argument i, or otherwise if it is not given.
func (a boundArgs) value(i int, otherwise any) any {
	if a.given[i] {
		return a.values[i]
	}
	return otherwise
}

func (a boundArgs) bool(i int) bool { return truthy(a.value(i, nil)) }

func (a boundArgs) int(i int, otherwise int64) int64 {
	if !a.given[i] {
		return otherwise
	}
	return a.r.integer(a.values[i])
}

// str returns argument i, which must be a string.
func (a boundArgs) str(i int, otherwise string) string {
	if !a.given[i] {
		return otherwise
	}
	s, ok := a.values[i].(string)
	if !ok {
		a.r.mustDefine(a.values[i])
		a.r.fail("a string is needed, not %s", typeName(a.values[i]))
	}
	return s
}

// text returns argument i as text.
func (a boundArgs) text(i int, otherwise string) string {
	if !a.given[i] {
		return otherwise
	}
	return a.r.str(a.values[i])
}

// integer returns an int argument that is within int64.
func (r *renderer) integer(v any) int64 {
	i, ok := smallInt(v)
	if !ok {
		r.mustDefine(v)
		r.fail("an integer is needed, not %s", typeName(v))
	}
	return i
}
