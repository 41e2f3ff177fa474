package jinja

import "unicode/utf8"

func (e *attrExpr) eval(r *renderer) any { return r.attribute(r.eval(e.x), e.name) }

func (e *indexExpr) eval(r *renderer) any {
	x, i := r.eval(e.x), r.eval(e.index)
	r.touch(i)
	if s, ok := x.(string); ok {
		r.touch(s)
	}
	return r.item(x, i)
}

// attribute is x.name: the method or attribute of that name, or else the item.
func (r *renderer) attribute(x any, name string) any {
	if v, ok := r.method(x, name); ok {
		return v
	}
	if d, ok := x.(*Dict); ok {
		if v, ok := d.get(name); ok {
			return v
		}
	}
	return r.missing(x, " has no attribute "+r.repr(name))
}

// item is x[i]: the item, or else the method or attribute of that name.
func (r *renderer) item(x, i any) any {
	switch c := x.(type) {
	case *Dict:
		if hash, ok := hashKey(i); ok {
			if v, ok := c.get(hash); ok {
				return v
			}
		}
	case *List:
		if n, ok := smallInt(i); ok && c.indexable() {
			if n < 0 {
				n += int64(len(c.items))
			}
			if n >= 0 && n < int64(len(c.items)) {
				return c.items[n]
			}
		}
	case string:
		if n, ok := smallInt(i); ok {
			if s, ok := runeAt(c, n); ok {
				return s
			}
		}
	}
	name, ok := i.(string)
	if !ok {
		return r.missing(x, " has no element "+r.repr(i))
	}
	if v, ok := r.method(x, name); ok {
		return v
	}
	return r.missing(x, " has no attribute "+r.repr(name))
}

// missing is the value of an item or attribute that x lacks.
func (r *renderer) missing(x any, problem string) any {
	r.mustDefine(x)
	if x == nil {
		return &undefined{"None" + problem}
	}
	return &undefined{"'" + typeName(x) + " object'" + problem}
}

// runeAt returns the character at an index, which counts from the end if it
// is negative.
func runeAt(s string, n int64) (string, bool) {
	if n < 0 {
		n += int64(utf8.RuneCountInString(s))
	}
	if n < 0 {
		return "", false
	}
	for _, c := range s {
		if n == 0 {
			return string(c), true
		}
		n--
	}
	return "", false
}

func (e *sliceExpr) eval(r *renderer) any {
	x := r.eval(e.x)
	r.mustDefine(x)
	from, to, step := r.bound(e.from), r.bound(e.to), r.bound(e.step)
	r.touch(x)
	switch c := x.(type) {
	case string:
		r.growTimes(len(c), 4)
		chars := []rune(c)
		return r.made(string(sliceOf(r, chars, from, to, step)))
	case *List:
		if c.indexable() {
			l := &List{items: sliceOf(r, c.items, from, to, step), kind: c.kind}
			if c.kind == kindRange {
				l.kind = kindList
			}
			return r.made(l)
		}
	}
	return r.missing(x, " cannot be sliced")
}

// bound evaluates one bound of a slice; nil if it is absent or None.
func (r *renderer) bound(e expr) *int64 {
	if e == nil {
		return nil
	}
	v := r.eval(e)
	if v == nil {
		return nil
	}
	i, ok := smallInt(v)
	if !ok {
		r.mustDefine(v)
		r.fail("slice indices must be integers or None")
	}
	return &i
}

// sliceOf is Python's s[from:to:step].
func sliceOf[T any](r *renderer, s []T, from, to, step *int64) []T {
	n, by := int64(len(s)), int64(1)
	if step != nil {
		by = max(*step, -1<<40) // far beyond any length, and safe to add
		by = min(by, 1<<40)
	}
	if by == 0 {
		r.fail("slice step cannot be zero")
	}
	lowest, highest := int64(0), n // where a bound may lie
	if by < 0 {
		lowest, highest = -1, n-1
	}
	clamp := func(bound *int64, otherwise int64) int64 {
		if bound == nil {
			return otherwise
		}
		i := *bound
		if i < 0 {
			i += n
		}
		return min(max(i, lowest), highest)
	}
	start, end := clamp(from, lowest), clamp(to, highest)
	if by < 0 {
		start, end = clamp(from, highest), clamp(to, lowest)
	}
	out := []T{}
	for i := start; by > 0 && i < end || by < 0 && i > end; i += by {
		out = append(out, s[i])
	}
	return out
}
