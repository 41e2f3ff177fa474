package jinja

import (
	"cmp"
	"math/big"
	"slices"
	"strings"
)

// equal is Python's ==.
func (r *renderer) equal(a, b any) bool { return r.equalAt(a, b, 0) }

func (r *renderer) equalAt(a, b any, depth int) bool {
	r.visitAt(depth)
	r.touch(a)
	if c, ok := compareNumbers(a, b); ok {
		return c == 0
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case string:
		y, ok := b.(string)
		return ok && x == y
	case *undefined:
		return isUndefined(b)
	case *List:
		y, ok := b.(*List)
		if !ok || x.kind != y.kind || len(x.items) != len(y.items) || x.kind >= kindView && x != y {
			return false
		}
		for i := range x.items {
			if !r.equalAt(x.items[i], y.items[i], depth+1) {
				return false
			}
		}
		return true
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || len(x.entries) != len(y.entries) {
			return false
		}
		for _, e := range x.entries {
			hash, _ := hashKey(e.key)
			v, found := y.get(hash)
			if !found || !r.equalAt(e.value, v, depth+1) {
				return false
			}
		}
		return true
	case *callable, object:
		return a == b
	}
	return false
}

func (r *renderer) visitAt(depth int) {
	r.spend(1)
	if depth > maxValueDepth {
		r.limit("value is nested more than %d deep", maxValueDepth)
	}
}

// compareNumbers returns the sign of a - b, and false if one is no number. A
// NaN is unequal to all, and here smaller.
func compareNumbers(a, b any) (int, bool) {
	if i, ok := smallInt(a); ok {
		if j, ok := smallInt(b); ok {
			return cmp.Compare(i, j), true
		}
	}
	if i, ok := bigInt(a); ok {
		if j, ok := bigInt(b); ok {
			return i.Cmp(j), true
		}
	}
	x, ok := number(a)
	y, ok2 := number(b)
	switch {
	case !ok || !ok2:
		return 0, false
	case x == y:
		return 0, true
	case x > y:
		return 1, true
	}
	return -1, true
}

// less is Python's <.
func (r *renderer) less(a, b any) bool { return r.order(a, b, 0) < 0 }

// lessOrEqual is Python's <=.
func (r *renderer) lessOrEqual(a, b any) bool { return r.order(a, b, 0) <= 0 }

// order returns the sign of a compared with b.
func (r *renderer) order(a, b any, depth int) int {
	r.visitAt(depth)
	r.touch(a)
	if c, ok := compareNumbers(a, b); ok {
		return c
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y)
		}
	case *List:
		if y, ok := b.(*List); ok && x.kind == y.kind && x.kind <= kindTuple {
			for i := range min(len(x.items), len(y.items)) {
				if !r.equalAt(x.items[i], y.items[i], depth+1) {
					return r.order(x.items[i], y.items[i], depth+1)
				}
			}
			return len(x.items) - len(y.items)
		}
	}
	r.mustDefine(a, b)
	r.fail("'%s' and '%s' cannot be ordered", typeName(a), typeName(b))
	return 0
}

// sortBy sorts by key, keeping the order of equals also when it is reversed.
func sortBy[T any](r *renderer, s []T, key func(T) any, reverse bool) {
	r.growTimes(len(s), 5*itemBytes)
	keys := make([]any, len(s))
	order := make([]int, len(s))
	for i := range s {
		keys[i], order[i] = key(s[i]), i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if c := r.order(keys[i], keys[j], 0); !reverse {
			return c
		} else {
			return -c
		}
	})
	sorted := make([]T, len(s))
	for i, from := range order {
		sorted[i] = s[from]
	}
	copy(s, sorted)
}

// identical is Python's "is" as far as a template can tell.
func (r *renderer) identical(a, b any) bool {
	switch x := a.(type) {
	case *List, *Dict, *callable, object:
		return a == b
	case *big.Int:
		return r.equal(x, b)
	}
	return typeName(a) == typeName(b) && r.equal(a, b)
}
