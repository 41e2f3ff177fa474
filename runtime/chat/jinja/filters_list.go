package jinja

import (
	"slices"
	"strconv"
	"strings"
)

var listFilters = map[string]filterFunc{
	"length":  newFilter("", lengthFilter),
	"list":    newFilter("", func(r *renderer, v any, _ boundArgs) any { return &List{items: r.iterateCopy(v)} }),
	"first":   newFilter("", firstFilter),
	"last":    newFilter("", lastFilter),
	"reverse": newFilter("", reverseFilter),
	"default": newFilter("default_value boolean", func(_ *renderer, v any, a boundArgs) any {
		if isUndefined(v) || a.bool(1) && !truthy(v) {
			return a.value(0, "")
		}
		return v
	}),
	"attr": newFilter("name!", func(r *renderer, v any, a boundArgs) any {
		if x, ok := r.method(v, a.text(0, "")); ok {
			return x
		}
		return r.missing(v, " has no attribute "+r.repr(a.values[0]))
	}),
	"join":     newFilter("d attribute", joinFilter),
	"sort":     newFilter("reverse case_sensitive attribute", sortFilter),
	"unique":   newFilter("case_sensitive attribute", uniqueFilter),
	"sum":      newFilter("attribute start", sumFilter),
	"min":      newFilter("case_sensitive attribute", func(r *renderer, v any, a boundArgs) any { return extreme(r, v, a, -1) }),
	"max":      newFilter("case_sensitive attribute", func(r *renderer, v any, a boundArgs) any { return extreme(r, v, a, 1) }),
	"items":    newFilter("", itemsFilter),
	"dictsort": newFilter("case_sensitive by reverse", dictsortFilter),
	"groupby":  newFilter("attribute! default case_sensitive", groupbyFilter),
	"batch":    newFilter("linecount! fill_with", batchFilter),
	"slice":    newFilter("slices! fill_with", sliceFilter),
}

// splitPath splits "a.0.b" into keys; those of digits are ints.
func (r *renderer) splitPath(path string) (keys []any) {
	r.growTimes(strings.Count(path, ".")+1, 3*itemBytes)
	for _, part := range strings.Split(path, ".") {
		if n, err := strconv.ParseInt(part, 10, 64); err == nil && n >= 0 && isDigit(part[0]) {
			keys = append(keys, n)
		} else {
			keys = append(keys, part)
		}
	}
	return keys
}

func lengthFilter(r *renderer, v any, _ boundArgs) any {
	switch x := v.(type) {
	case string:
		return runeCount(x)
	case *Dict:
		return int64(len(x.entries))
	case *undefined:
		return int64(0)
	case *List:
		if x.kind != kindIterator {
			return int64(len(x.items))
		}
	case *loop:
		return int64(len(x.items))
	}
	r.fail("object of type '%s' has no len()", typeName(v))
	return nil
}

func firstFilter(r *renderer, v any, _ boundArgs) any {
	switch x := v.(type) {
	case string:
		if s, ok := runeAt(x, 0); ok {
			return s
		}
	case *List:
		if len(x.items) > 0 {
			first := x.items[0]
			if x.kind == kindIterator { // takes just one
				x.items = x.items[1:]
			}
			return first
		}
	default:
		if items := r.iterate(v); len(items) > 0 {
			return items[0]
		}
	}
	return &undefined{"No first item, sequence was empty."}
}

func lastFilter(r *renderer, v any, _ boundArgs) any {
	if l, ok := v.(*List); ok && l.kind == kindIterator {
		r.fail("'generator' object is not reversible: put |list before |last")
	}
	if items := r.iterate(v); len(items) > 0 {
		return items[len(items)-1]
	}
	return &undefined{"No last item, sequence was empty."}
}

func reverseFilter(r *renderer, v any, _ boundArgs) any {
	if s, ok := v.(string); ok {
		r.growTimes(len(s), 4)
		chars := []rune(s)
		slices.Reverse(chars)
		return string(chars)
	}
	items := r.iterateCopy(v)
	slices.Reverse(items)
	if l, ok := v.(*List); ok && l.kind == kindIterator {
		return &List{items: items}
	}
	return newIterator("reversed", items)
}

func joinFilter(r *renderer, v any, a boundArgs) any {
	get := r.getter(a.value(1, nil), nil)
	var parts []string
	for _, item := range r.iterate(v) {
		r.grow(itemBytes)
		parts = append(parts, r.str(get(item)))
	}
	return r.join(parts, a.text(0, ""))
}

func sortFilter(r *renderer, v any, a boundArgs) any {
	items := r.iterateCopy(v)
	attributes := []any{a.value(2, nil)}
	if s, ok := attributes[0].(string); ok { // "a,b": by a, then by b
		r.growTimes(strings.Count(s, ",")+1, 3*itemBytes)
		attributes = nil
		for _, part := range strings.Split(s, ",") {
			attributes = append(attributes, part)
		}
	}
	var gets []func(any) any
	for _, attribute := range attributes {
		gets = append(gets, r.sortKey(attribute, nil, a.bool(1)))
	}
	sortBy(r, items, func(item any) any {
		key := &List{}
		for _, get := range gets {
			key.items = append(key.items, get(item))
		}
		return key
	}, a.bool(0))
	return &List{items: items}
}

func uniqueFilter(r *renderer, v any, a boundArgs) any {
	get := r.sortKey(a.value(1, nil), nil, a.bool(0))
	seen := map[any]bool{}
	var kept []any
	for _, item := range r.iterate(v) {
		key := get(item)
		r.touch(key)
		hash, ok := hashKey(key)
		if !ok {
			r.fail("unhashable type: '%s'", typeName(key))
		}
		if !seen[hash] {
			r.grow(4 * itemBytes)
			seen[hash] = true
			kept = append(kept, item)
		}
	}
	return newIterator("generator", kept)
}

func sumFilter(r *renderer, v any, a boundArgs) any {
	get := r.getter(a.value(0, nil), nil)
	total := a.value(1, int64(0))
	if isType[string](total) {
		r.fail("sum() cannot sum strings: use join")
	}
	for _, item := range r.iterate(v) {
		x := get(item)
		r.mustDefine(total, x)
		r.touch(total)
		total = r.arithmetic("+", total, x)
	}
	return total
}

// extreme returns the first item that is least (sign -1) or greatest (1).
func extreme(r *renderer, v any, a boundArgs, sign int) any {
	items := r.iterate(v)
	if len(items) == 0 {
		return &undefined{"No aggregated item, sequence was empty."}
	}
	get := r.sortKey(a.value(1, nil), nil, a.bool(0))
	best, bestKey := items[0], get(items[0])
	for _, item := range items[1:] {
		if key := get(item); r.order(key, bestKey, 0)*sign > 0 {
			best, bestKey = item, key
		}
	}
	return best
}

func itemsFilter(r *renderer, v any, _ boundArgs) any {
	switch d := v.(type) {
	case *Dict:
		return newIterator("generator", r.pairs(d))
	case *undefined:
		return newIterator("generator", nil)
	}
	r.fail("Can only get item pairs from a mapping.")
	return nil
}

func dictsortFilter(r *renderer, v any, a boundArgs) any {
	r.mustDefine(v)
	d, ok := v.(*Dict)
	if !ok {
		r.fail("dictsort needs a dict, not %s", typeName(v))
	}
	by := int64(0)
	switch a.text(1, "key") {
	case "key":
	case "value":
		by = 1
	default:
		r.fail(`You can only sort by either "key" or "value"`)
	}
	pairs := r.pairs(d)
	sortBy(r, pairs, r.sortKey(by, nil, a.bool(0)), a.bool(2))
	return &List{items: pairs}
}

// groupLabel marks the pairs that groupby makes, whose parts have names too.
const groupLabel = "group"

func groupbyFilter(r *renderer, v any, a boundArgs) any {
	items := r.iterateCopy(v)
	key := r.sortKey(a.values[0], a.value(1, nil), a.bool(2))
	name := r.getter(a.values[0], a.value(1, nil))
	sortBy(r, items, key, false)
	out := &List{}
	var last any
	var members *List
	for _, item := range items {
		k := key(item)
		if members == nil || !r.equal(k, last) {
			members, last = &List{}, k
			r.grow(8 * itemBytes)
			pair := newTuple(name(item), members)
			pair.label = groupLabel
			out.items = append(out.items, pair)
		}
		members.items = append(members.items, item)
	}
	return out
}

func batchFilter(r *renderer, v any, a boundArgs) any {
	n := a.int(0, 0)
	if n < 1 {
		r.fail("batch needs a positive size, not %d", n)
	}
	items := r.iterate(v)
	n = min(n, int64(r.limits.Memory/itemBytes)) // growTimes refuses that much anyway
	var rows []any
	for row := range slices.Chunk(items, int(n)) {
		r.growTimes(len(row)+2, itemBytes)
		rows = append(rows, &List{items: r.fill(slices.Clone(row), int(n), a.value(1, nil))})
	}
	return newIterator("generator", rows)
}

// fill appends filler, unless it is nil, until there are n items.
func (r *renderer) fill(items []any, n int, filler any) []any {
	if filler == nil || n <= len(items) {
		return items
	}
	r.growTimes(n-len(items), itemBytes)
	return append(items, slices.Repeat([]any{filler}, n-len(items))...)
}

func sliceFilter(r *renderer, v any, a boundArgs) any {
	n := a.int(0, 0)
	if n < 1 {
		r.fail("slice needs a positive number of slices, not %d", n)
	}
	items := r.iterate(v)
	if n > int64(r.limits.Memory) {
		r.limit("slice into %d parts", n)
	}
	r.growTimes(int(n), 4*itemBytes)
	r.spend(int(n))
	size, longer := len(items)/int(n), len(items)%int(n)
	var parts []any
	for i := range int(n) {
		k := size
		if i < longer {
			k++
		}
		part := slices.Clone(items[:k])
		items = items[k:]
		if i >= longer && longer >= 0 && a.value(1, nil) != nil {
			part = r.fill(part, k+1, a.value(1, nil))
		}
		parts = append(parts, &List{items: part})
	}
	return newIterator("generator", parts)
}
