package jinja

import "strings"

func (r *renderer) eval(e expr) any {
	r.spend(1)
	return e.eval(r)
}

func (e *literal) eval(*renderer) any   { return e.value }
func (e nameExpr) eval(r *renderer) any { return r.lookup(string(e)) }

func (e *listExpr) eval(r *renderer) any {
	l := &List{items: make([]any, len(e.items))}
	if e.tuple {
		l.kind = kindTuple
	}
	for i, item := range e.items {
		l.items[i] = r.eval(item)
	}
	return r.made(l)
}

func (e *dictExpr) eval(r *renderer) any {
	d := NewDict()
	for i, k := range e.keys {
		r.dictSet(d, r.eval(k), r.eval(e.values[i]))
	}
	return r.made(d)
}

// dictSet sets any key that Python allows.
func (r *renderer) dictSet(d *Dict, key, value any) {
	r.touch(key)
	hash, ok := hashKey(key)
	if !ok {
		r.fail("unhashable type: '%s'", typeName(key))
	}
	d.put(hash, key, value)
}

func (e *condExpr) eval(r *renderer) any {
	switch {
	case truthy(r.eval(e.cond)):
		return r.eval(e.then)
	case e.otherwise == nil:
		return &undefined{"the inline if-expression evaluated to false and no else section was defined"}
	}
	return r.eval(e.otherwise)
}

func (e *notExpr) eval(r *renderer) any { return !truthy(r.eval(e.x)) }

func (e *logicExpr) eval(r *renderer) any {
	if a := r.eval(e.a); truthy(a) == e.or {
		return a
	}
	return r.eval(e.b)
}

func (e *signExpr) eval(r *renderer) any { return r.sign(e.negative, r.eval(e.x)) }

func (e *binaryExpr) eval(r *renderer) any {
	a, b := r.eval(e.a), r.eval(e.b)
	r.touch(a, b)
	if e.op == "~" {
		return r.made(r.str(a) + r.str(b))
	}
	r.mustDefine(a, b)
	return r.arithmetic(e.op, a, b)
}

func (e *compareExpr) eval(r *renderer) any {
	a := r.eval(e.first)
	for i, op := range e.ops {
		b := r.eval(e.rest[i])
		if !r.compare(op, a, b) {
			return false
		}
		a = b
	}
	return true
}

func (r *renderer) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	r.mustDefine(a, b)
	switch op {
	case "<":
		return r.less(a, b)
	case ">":
		return r.less(b, a)
	case "<=":
		return r.lessOrEqual(a, b)
	default: // ">="
		return r.lessOrEqual(b, a)
	}
}

func (r *renderer) contains(container, v any) bool {
	r.touch(container, v)
	switch x := container.(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			r.mustDefine(v)
			r.fail("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(x, s)
	case *Dict:
		hash, ok := hashKey(v)
		if !ok {
			r.fail("unhashable type: '%s'", typeName(v))
		}
		_, found := x.get(hash)
		return found
	case *List, *undefined:
		for _, item := range r.iterate(x) {
			if r.equal(item, v) {
				return true
			}
		}
		return false
	}
	r.fail("argument of type '%s' is not iterable", typeName(container))
	return false
}

func (e *callExpr) eval(r *renderer) any {
	f := r.eval(e.f)
	in := e.args.eval(r)
	r.line = e.line
	return r.call(f, in)
}

func (e *filterExpr) eval(r *renderer) any {
	return r.applyFilter(r.eval(e.x), &e.filterCall)
}

func (r *renderer) applyFilters(v any, calls []filterCall) any {
	for i := range calls {
		v = r.applyFilter(v, &calls[i])
	}
	return v
}

func (r *renderer) applyFilter(v any, c *filterCall) any {
	in := c.args.eval(r)
	r.line = c.line
	return r.filter(c.name, v, in)
}

// filter calls the filter of that name.
func (r *renderer) filter(name string, v any, in arguments) any {
	f, ok := filters[name]
	if !ok {
		r.fail("no filter named '%s'", name)
	}
	r.spend(1)
	r.touch(v)
	r.touch(in.pos...)
	return r.made(f(r, v, in))
}

func (e *testExpr) eval(r *renderer) any {
	v := r.eval(e.x)
	in := e.args.eval(r)
	r.line = e.line
	return r.test(e.name, v, in) != e.negate
}

// test runs the test of that name.
func (r *renderer) test(name string, v any, in arguments) bool {
	t, ok := tests[name]
	if !ok {
		r.fail("no test named '%s'", name)
	}
	r.spend(1)
	r.touch(v)
	return t(r, v, in)
}
