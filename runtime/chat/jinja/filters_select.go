package jinja

// Filters that apply a filter or a test to each item. What they return runs
// once, is always true and has no length, as in Python.

var selectFilters = map[string]filterFunc{
	"map":        mapFilter,
	"select":     func(r *renderer, v any, in arguments) any { return r.selectItems(v, in, false, true) },
	"reject":     func(r *renderer, v any, in arguments) any { return r.selectItems(v, in, false, false) },
	"selectattr": func(r *renderer, v any, in arguments) any { return r.selectItems(v, in, true, true) },
	"rejectattr": func(r *renderer, v any, in arguments) any { return r.selectItems(v, in, true, false) },
}

func mapFilter(r *renderer, v any, in arguments) any {
	out := newIterator("generator", nil)
	if !truthy(v) {
		return out
	}
	apply := r.mapper(in)
	for _, item := range r.iterate(v) {
		r.grow(itemBytes)
		out.items = append(out.items, apply(item))
	}
	return out
}

var mapAttributeArgs = parseSignature("attribute! default")

// mapper returns what map does with an item: map("upper") or map(attribute="a").
func (r *renderer) mapper(in arguments) func(item any) any {
	if _, ok := in.get("attribute"); ok && len(in.pos) == 0 {
		a := mapAttributeArgs.bind(r, "map", in)
		return r.getter(a.values[0], a.value(1, nil))
	}
	if len(in.pos) == 0 {
		r.fail("map needs the name of a filter")
	}
	name := r.str(in.pos[0])
	rest := arguments{in.pos[1:], in.named}
	return func(item any) any { return r.filter(name, item, rest) }
}

// selectItems keeps the items that pass a test, or with keep false those that
// do not; byAttr tests an attribute of theirs.
func (r *renderer) selectItems(v any, in arguments, byAttr, keep bool) any {
	out := newIterator("generator", nil)
	if !truthy(v) {
		return out
	}
	get := r.getter(nil, nil)
	if byAttr {
		if len(in.pos) == 0 {
			r.fail("the name of an attribute is missing")
		}
		get = r.getter(in.pos[0], nil)
		in.pos = in.pos[1:]
	}
	pass := truthy
	if len(in.pos) > 0 {
		name := r.str(in.pos[0])
		rest := arguments{in.pos[1:], in.named}
		pass = func(x any) bool { return r.test(name, x, rest) }
	}
	for _, item := range r.iterate(v) {
		r.spend(1)
		if pass(get(item)) == keep {
			r.grow(itemBytes)
			out.items = append(out.items, item)
		}
	}
	return out
}
