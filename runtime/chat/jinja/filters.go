package jinja

import "slices"

// filterFunc is a filter, as in {{ v | name(arguments) }}.
type filterFunc func(r *renderer, v any, in arguments) any

var filters map[string]filterFunc

func init() { // not in the declaration: map and select call filters and tests
	filters = map[string]filterFunc{}
	for _, group := range []map[string]filterFunc{textFilters, numberFilters, listFilters, selectFilters} {
		for name, f := range group {
			filters[name] = f
		}
	}
	for alias, name := range map[string]string{"d": "default", "count": "length", "e": "escape"} {
		filters[alias] = filters[name]
	}
}

// newFilter makes a filter with a signature as in parseSignature.
func newFilter(spec string, run func(r *renderer, v any, a boundArgs) any) filterFunc {
	s := parseSignature(spec)
	return func(r *renderer, v any, in arguments) any {
		return run(r, v, s.bind(r, "filter", in))
	}
}

// getter looks up what the argument "attribute" of many filters names: a path
// of keys with dots between. With attribute nil it returns the item itself. A
// fallback that is not nil stands in for what is not there.
func (r *renderer) getter(attribute, fallback any) func(item any) any {
	var path []any
	switch a := attribute.(type) {
	case nil:
	case string:
		path = r.splitPath(a)
	default:
		path = []any{a}
	}
	return func(item any) any {
		for _, key := range path {
			r.spend(1)
			item = r.item(item, key)
			if fallback != nil && isUndefined(item) {
				item = fallback
			}
		}
		return item
	}
}

// sortKey is a getter for sorting: text without regard to case unless
// caseSensitive.
func (r *renderer) sortKey(attribute, fallback any, caseSensitive bool) func(item any) any {
	get := r.getter(attribute, fallback)
	return func(item any) any {
		v := get(item)
		if s, ok := v.(string); ok && !caseSensitive {
			r.grow(len(s))
			return lower(s)
		}
		return v
	}
}

// iterateCopy returns the items of v in a slice of their own.
func (r *renderer) iterateCopy(v any) []any {
	items := r.iterate(v)
	r.growTimes(len(items), itemBytes)
	return slices.Clone(items)
}
