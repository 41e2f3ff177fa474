package jinja

import (
	"fmt"
	"strconv"
)

// maxRange is the longest range(), as in Jinja's sandbox.
const maxRange = 100_000

// globals are the functions that a template finds without being given them.
var globals = map[string]any{
	"range":           &callable{"range", makeRange},
	"dict":            &callable{"dict", func(r *renderer, in arguments) any { return r.made(makeDict(r, in)) }},
	"namespace":       &callable{"namespace", makeNamespace},
	"joiner":          &callable{"joiner", makeJoiner},
	"cycler":          &callable{"cycler", makeCycler},
	"raise_exception": &callable{"raise_exception", raise},
	"strftime_now": &callable{"strftime_now", func(r *renderer, in arguments) any {
		a := strftimeArgs.bind(r, "strftime_now", in)
		return r.made(strftime(r, r.now, a.str(0, "")))
	}},
}

var (
	raiseArgs    = parseSignature("message!")
	strftimeArgs = parseSignature("format!")
	joinerArgs   = parseSignature("sep")
	rangeArgs    = parseSignature("start! stop step")
)

func raise(r *renderer, in arguments) any {
	a := raiseArgs.bind(r, "raise_exception", in)
	panic(&RaisedError{Line: r.line, Message: a.text(0, "")})
}

func makeRange(r *renderer, in arguments) any {
	a := rangeArgs.bind(r, "range", in)
	from, to, step := int64(0), a.int(0, 0), a.int(2, 1)
	if a.given[1] {
		from, to = to, a.int(1, 0)
	}
	if step == 0 {
		r.fail("range() step must not be zero")
	}
	l := &List{kind: kindRange, label: fmt.Sprintf("range(%d, %d)", from, to)}
	if step != 1 {
		l.label = fmt.Sprintf("range(%d, %d, %d)", from, to, step)
	}
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		if len(l.items) == maxRange {
			r.limit("range is longer than %d", maxRange)
		}
		l.items = append(l.items, i)
		if next := i + step; (next > i) != (step > 0) {
			break // beyond int64
		}
	}
	r.spend(len(l.items) / 8)
	return r.made(l)
}

func makeDict(r *renderer, in arguments) *Dict {
	d := NewDict()
	if len(in.pos) > 1 {
		r.fail("dict expected at most 1 argument, got %d", len(in.pos))
	}
	if len(in.pos) == 1 {
		r.touch(in.pos[0])
		if from, ok := in.pos[0].(*Dict); ok {
			d.update(from)
		} else {
			for _, pair := range r.iterate(in.pos[0]) {
				kv := r.iterate(pair)
				if len(kv) != 2 {
					r.fail("a dict is made of pairs, not of %d values", len(kv))
				}
				r.dictSet(d, kv[0], kv[1])
			}
		}
	}
	for _, a := range in.named {
		d.Set(a.name, a.value)
	}
	return d
}

func makeNamespace(r *renderer, in arguments) any {
	return &namespace{makeDict(r, in)}
}

func makeJoiner(r *renderer, in arguments) any {
	sep := joinerArgs.bind(r, "joiner", in).value(0, ", ")
	used := false
	return &callable{"joiner", func(*renderer, arguments) any {
		if used {
			return sep
		}
		used = true
		return ""
	}}
}

// cycler hands out its items in turn.
type cycler struct {
	items []any
	pos   int
}

func makeCycler(r *renderer, in arguments) any {
	if len(in.pos) == 0 {
		r.fail("at least one item has to be provided")
	}
	return &cycler{items: in.pos}
}

func (c *cycler) String() string { return "<Cycler of " + strconv.Itoa(len(c.items)) + ">" }

func (c *cycler) attr(_ *renderer, name string) (any, bool) {
	switch name {
	case "current":
		return c.items[c.pos], true
	case "next":
		return &callable{"next", func(*renderer, arguments) any {
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v
		}}, true
	case "reset":
		return &callable{"reset", func(*renderer, arguments) any {
			c.pos = 0
			return nil
		}}, true
	}
	return nil, false
}
