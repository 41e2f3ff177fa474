package jinja

func (r *renderer) run(body []statement) signal {
	for _, s := range body {
		r.line = s.line
		r.spend(1)
		if sig := s.exec(r); sig != signalNone {
			return sig
		}
	}
	return signalNone
}

// runInScope runs a body whose names end with it.
func (r *renderer) runInScope(body []statement) (sig signal) {
	r.within(&scope{parent: r.scope}, func() { sig = r.run(body) })
	return sig
}

func (n textNode) exec(r *renderer) signal {
	r.out.text(string(n))
	return signalNone
}

func (n outputNode) exec(r *renderer) signal {
	r.print(r.eval(n.value))
	return signalNone
}

func (r *renderer) print(v any) {
	switch x := v.(type) {
	case string:
		r.out.text(x)
	case *undefined:
	default:
		r.out.repr(v, 0)
	}
}

func (n *ifNode) exec(r *renderer) signal {
	for _, b := range n.branches {
		if truthy(r.eval(b.cond)) {
			return r.run(b.body)
		}
	}
	return r.run(n.otherwise)
}

func (n *setNode) exec(r *renderer) signal {
	n.target.assign(r, r.eval(n.value))
	return signalNone
}

func (n *setBlockNode) exec(r *renderer) signal {
	text := r.capture(func() { r.runInScope(n.body) })
	n.target.assign(r, r.applyFilters(text, n.filters))
	return signalNone
}

func (n *filterBlockNode) exec(r *renderer) signal {
	text := r.capture(func() { r.runInScope(n.body) })
	r.print(r.applyFilters(text, n.filters))
	return signalNone
}

func (n *withNode) exec(r *renderer) (sig signal) {
	values := make([]any, len(n.values))
	for i, e := range n.values {
		values[i] = r.eval(e) // none of them sees the new names
	}
	r.within(&scope{parent: r.scope}, func() {
		for i, t := range n.targets {
			t.assign(r, values[i])
		}
		sig = r.run(n.body)
	})
	return sig
}

func (n scopeNode) exec(r *renderer) signal  { return r.runInScope(n) }
func (breakNode) exec(*renderer) signal      { return signalBreak }
func (continueNode) exec(*renderer) signal   { return signalContinue }
func (n *macroNode) exec(r *renderer) signal { r.set(n.name, &macro{n, r.scope}); return signalNone }

func (n *callBlockNode) exec(r *renderer) signal {
	f := r.eval(n.call.f)
	in := n.call.args.eval(r)
	in.named = append(in.named, namedArg{"caller", &macro{n.macro, r.scope}})
	r.print(r.call(f, in))
	return signalNone
}

// Assignment.

func (t nameTarget) assign(r *renderer, v any) { r.set(string(t), v) }

func (t attrTarget) assign(r *renderer, v any) {
	n, ok := r.lookup(t.namespace).(*namespace)
	if !ok {
		r.fail("cannot assign to %s.%s: %s is not a namespace", t.namespace, t.attr, t.namespace)
	}
	n.attrs.Set(t.attr, v)
}

func (t tupleTarget) assign(r *renderer, v any) {
	items := r.iterate(v)
	if len(items) != len(t) {
		r.fail("cannot unpack %d values into %d names", len(items), len(t))
	}
	for i, to := range t {
		to.assign(r, items[i])
	}
}
