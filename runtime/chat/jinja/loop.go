package jinja

import (
	"fmt"
	"slices"
)

// loop is the variable "loop" inside a for.
type loop struct {
	items     []any
	i         int
	depth     int                 // 1 for the outermost of a recursive loop
	recurse   func(items any) any // or nil
	last      []any               // arguments of the last changed()
	lastKnown bool
}

func (n *forNode) exec(r *renderer) signal {
	return n.run(r, r.eval(n.in), 1)
}

func (n *forNode) run(r *renderer, in any, depth int) signal {
	outer := r.scope
	items := r.iterate(in)
	if n.cond != nil {
		items = n.filter(r, items)
	}
	l := &loop{items: items, depth: depth}
	if n.recursive {
		l.recurse = func(items any) any { return n.recurse(r, outer, items, depth+1) }
	}
	finished := false // an iteration ran to its end
	for i, item := range items {
		r.spend(4) // a scope is dear
		l.i = i
		sig := signalNone
		r.within(&scope{vars: map[string]any{"loop": l}, parent: outer}, func() {
			n.target.assign(r, item)
			sig = r.run(n.body)
		})
		if sig == signalBreak {
			break
		}
		finished = finished || sig == signalNone
	}
	if !finished { // Jinja's rule for "else": also after a break or continue in every iteration
		return r.runInScope(n.otherwise)
	}
	return signalNone
}

// filter keeps the items for which the loop's "if" holds.
func (n *forNode) filter(r *renderer, items []any) (kept []any) {
	for _, item := range items {
		r.spend(4)
		r.within(&scope{parent: r.scope}, func() {
			n.target.assign(r, item)
			if truthy(r.eval(n.cond)) {
				kept = append(kept, item)
			}
		})
	}
	return kept
}

// recurse is loop(items) in a recursive loop: the text of the same loop over
// other items.
func (n *forNode) recurse(r *renderer, outer *scope, items any, depth int) any {
	r.enterCall()
	line := r.line
	text := r.capture(func() {
		r.within(outer, func() { n.run(r, items, depth) })
	})
	r.line = line
	r.calls--
	return text
}

func (l *loop) String() string {
	return fmt.Sprintf("<LoopContext %d/%d>", l.i+1, len(l.items))
}

func (l *loop) attr(_ *renderer, name string) (any, bool) {
	i, n := int64(l.i), int64(len(l.items))
	switch name {
	case "index":
		return i + 1, true
	case "index0":
		return i, true
	case "revindex":
		return n - i, true
	case "revindex0":
		return n - i - 1, true
	case "first":
		return i == 0, true
	case "last":
		return i == n-1, true
	case "length":
		return n, true
	case "depth":
		return int64(l.depth), true
	case "depth0":
		return int64(l.depth - 1), true
	case "previtem":
		if i == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.items[i-1], true
	case "nextitem":
		if i == n-1 {
			return &undefined{"there is no next item"}, true
		}
		return l.items[i+1], true
	case "cycle":
		return &callable{"cycle", l.cycle}, true
	case "changed":
		return &callable{"changed", l.changed}, true
	}
	return nil, false
}

func (l *loop) cycle(r *renderer, in arguments) any {
	if len(in.pos) == 0 {
		r.fail("no items for cycling given")
	}
	return in.pos[l.i%len(in.pos)]
}

func (l *loop) changed(r *renderer, in arguments) any {
	same := l.lastKnown && slices.EqualFunc(l.last, in.pos, r.equal)
	l.last, l.lastKnown = in.pos, true
	return !same
}

// iterate returns the items of what a for loop or a filter walks over. An
// iterator is empty afterwards.
func (r *renderer) iterate(v any) []any {
	switch x := v.(type) {
	case *List:
		r.touch(x)
		items := x.items
		if x.kind == kindIterator {
			x.items = nil
		}
		return items
	case *Dict:
		r.growTimes(len(x.entries), itemBytes)
		r.touch(x)
		keys := make([]any, len(x.entries))
		for i, e := range x.entries {
			keys[i] = e.key
		}
		return keys
	case string:
		r.growTimes(len(x), 2*itemBytes) // a slot and the string in it
		r.spend(len(x) / 4)
		items := make([]any, 0, len(x))
		for _, c := range x {
			items = append(items, string(c))
		}
		return items
	case *undefined:
		return nil
	}
	r.fail("'%s' object is not iterable", typeName(v))
	return nil
}
