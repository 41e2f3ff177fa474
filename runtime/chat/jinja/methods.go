package jinja

import (
	"slices"
	"strings"
	"unicode"
)

// Methods of strings, lists and dicts: those of Python that change nothing.

type method[T any] struct {
	signature
	run func(r *renderer, self T, a boundArgs) any
}

func newMethod[T any](spec string, run func(r *renderer, self T, a boundArgs) any) method[T] {
	return method[T]{parseSignature(spec), run}
}

// method returns x's method or attribute of that name.
func (r *renderer) method(x any, name string) (any, bool) {
	switch v := x.(type) {
	case string:
		if name == "format" {
			return &callable{"format", func(r *renderer, in arguments) any { return r.made(r.format(v, in)) }}, true
		}
		return bindMethod(stringMethods, v, name)
	case *Dict:
		if slices.Contains([]string{"clear", "pop", "popitem", "setdefault", "update"}, name) {
			return unsafeMethod(x, name), true
		}
		return bindMethod(dictMethods, v, name)
	case *List:
		switch v.kind {
		case kindList:
			if slices.Contains([]string{"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}, name) {
				return unsafeMethod(x, name), true
			}
			if name == "copy" {
				return bindMethod(listMethods, v, name)
			}
			fallthrough
		case kindTuple, kindRange:
			if i := slices.Index([]string{"grouper", "list"}, name); i >= 0 && v.label == groupLabel {
				return v.items[i], true
			}
			if name != "copy" {
				return bindMethod(listMethods, v, name)
			}
		}
	case object:
		return v.attr(r, name)
	}
	return nil, false
}

// unsafeMethod stands for a method that would change what the template was
// given: calling it fails.
func unsafeMethod(x any, name string) any {
	return &undefined{"access to attribute '" + name + "' of '" + typeName(x) + "' object is unsafe: a template cannot change lists and dicts"}
}

func bindMethod[T any](methods map[string]method[T], self T, name string) (any, bool) {
	m, ok := methods[name]
	if !ok {
		return nil, false
	}
	return &callable{name, func(r *renderer, in arguments) any {
		a := m.bind(r, name, in)
		r.touch(any(self))
		r.touch(in.pos...)
		return r.made(m.run(r, self, a))
	}}, true
}

var dictMethods = map[string]method[*Dict]{
	"items": newMethod("", func(r *renderer, d *Dict, _ boundArgs) any {
		return &List{items: r.pairs(d), kind: kindView, label: "dict_items"}
	}),
	"keys": newMethod("", func(r *renderer, d *Dict, _ boundArgs) any {
		return &List{items: r.iterate(d), kind: kindView, label: "dict_keys"}
	}),
	"values": newMethod("", func(r *renderer, d *Dict, _ boundArgs) any {
		l := &List{kind: kindView, label: "dict_values"}
		for _, e := range d.entries {
			l.items = append(l.items, e.value)
		}
		return l
	}),
	"get": newMethod("key! default", func(r *renderer, d *Dict, a boundArgs) any {
		hash, ok := hashKey(a.values[0])
		if !ok {
			r.fail("unhashable type: '%s'", typeName(a.values[0]))
		}
		if v, ok := d.get(hash); ok {
			return v
		}
		return a.value(1, nil)
	}),
	"copy": newMethod("", func(_ *renderer, d *Dict, _ boundArgs) any { return d.copy() }),
}

// pairs returns the (key, value) tuples of a dict.
func (r *renderer) pairs(d *Dict) []any {
	r.growTimes(len(d.entries), 6*itemBytes)
	r.touch(d)
	pairs := make([]any, len(d.entries))
	for i, e := range d.entries {
		pairs[i] = newTuple(e.key, e.value)
	}
	return pairs
}

var listMethods = map[string]method[*List]{
	"copy": newMethod("", func(_ *renderer, l *List, _ boundArgs) any {
		return &List{items: slices.Clone(l.items)}
	}),
	"count": newMethod("value!", func(r *renderer, l *List, a boundArgs) any {
		n := int64(0)
		for _, item := range l.items {
			if r.equal(item, a.values[0]) {
				n++
			}
		}
		return n
	}),
	"index": newMethod("value!", func(r *renderer, l *List, a boundArgs) any {
		for i, item := range l.items {
			if r.equal(item, a.values[0]) {
				return int64(i)
			}
		}
		r.fail("%s is not in the list", r.repr(a.values[0]))
		return nil
	}),
}

var stringMethods = map[string]method[string]{
	"upper":      plainMethod(upper),
	"lower":      plainMethod(lower),
	"casefold":   plainMethod(func(s string) string { return strings.ReplaceAll(lower(s), "ß", "ss") }),
	"title":      plainMethod(title),
	"capitalize": plainMethod(capitalize),
	"swapcase":   plainMethod(swapCase),

	"isalnum":   checkMethod(func(s string) bool { return allRunes(s, isAlnum) }),
	"isalpha":   checkMethod(func(s string) bool { return allRunes(s, unicode.IsLetter) }),
	"isascii":   checkMethod(func(s string) bool { return s == "" || allRunes(s, func(c rune) bool { return c < 128 }) }),
	"isdecimal": checkMethod(func(s string) bool { return allRunes(s, unicode.IsDigit) }),
	"isdigit":   checkMethod(func(s string) bool { return allRunes(s, isDigitRune) }),
	"isnumeric": checkMethod(func(s string) bool { return allRunes(s, unicode.IsNumber) }),
	"isspace":   checkMethod(func(s string) bool { return allRunes(s, isSpace) }),
	"islower":   checkMethod(func(s string) bool { return hasCase(s, unicode.IsLower) }),
	"isupper":   checkMethod(func(s string) bool { return hasCase(s, unicode.IsUpper) }),
	"istitle":   checkMethod(func(s string) bool { return title(s) == s && hasCase(s, func(rune) bool { return true }) }),

	"strip":  stripMethod(true, true),
	"lstrip": stripMethod(true, false),
	"rstrip": stripMethod(false, true),
	"removeprefix": newMethod("prefix!", func(_ *renderer, s string, a boundArgs) any {
		return strings.TrimPrefix(s, a.str(0, ""))
	}),
	"removesuffix": newMethod("suffix!", func(_ *renderer, s string, a boundArgs) any {
		return strings.TrimSuffix(s, a.str(0, ""))
	}),

	"split":  splitMethod(false),
	"rsplit": splitMethod(true),
	"splitlines": newMethod("keepends", func(r *renderer, s string, a boundArgs) any {
		r.growParts(s, isLineEnd)
		return stringList(splitLines(s, a.bool(0)))
	}),
	"partition": newMethod("sep!", func(r *renderer, s string, a boundArgs) any {
		sep := r.separator(a.str(0, ""))
		before, after, found := strings.Cut(s, sep)
		if !found {
			sep = ""
		}
		return newTuple(before, sep, after)
	}),
	"rpartition": newMethod("sep!", func(r *renderer, s string, a boundArgs) any {
		sep := r.separator(a.str(0, ""))
		i := strings.LastIndex(s, sep)
		if i < 0 {
			return newTuple("", "", s)
		}
		return newTuple(s[:i], sep, s[i+len(sep):])
	}),
	"join": newMethod("iterable!", func(r *renderer, s string, a boundArgs) any {
		var parts []string
		for i, item := range r.iterate(a.values[0]) {
			part, ok := item.(string)
			if !ok {
				r.fail("sequence item %d: expected str instance, %s found", i, typeName(item))
			}
			parts = append(parts, part)
		}
		return r.join(parts, s)
	}),

	"startswith": affixMethod(strings.HasPrefix),
	"endswith":   affixMethod(strings.HasSuffix),
	"find":       searchMethod(strings.Index, false),
	"rfind":      searchMethod(strings.LastIndex, false),
	"index":      searchMethod(strings.Index, true),
	"rindex":     searchMethod(strings.LastIndex, true),
	"count": newMethod("sub! start end", func(r *renderer, s string, a boundArgs) any {
		s, _ = a.window(s, 1)
		return int64(strings.Count(s, a.str(0, "")))
	}),
	"replace": newMethod("old! new! count", func(r *renderer, s string, a boundArgs) any {
		return r.replace(s, a.str(0, ""), a.str(1, ""), a.int(2, -1))
	}),

	"ljust":  padMethod('<'),
	"rjust":  padMethod('>'),
	"center": padMethod('c'),
	"zfill": newMethod("width!", func(r *renderer, s string, a boundArgs) any {
		return r.pad(s, a.int(0, 0), "0", '=')
	}),
}

func plainMethod(f func(string) string) method[string] {
	return newMethod("", func(_ *renderer, s string, _ boundArgs) any { return f(s) })
}

func checkMethod(f func(string) bool) method[string] {
	return newMethod("", func(_ *renderer, s string, _ boundArgs) any { return f(s) })
}

func stripMethod(left, right bool) method[string] {
	return newMethod("chars", func(_ *renderer, s string, a boundArgs) any {
		return strip(s, a.optionalString(0), left, right)
	})
}

// optionalString returns argument i, or nil if it is absent or None.
func (a boundArgs) optionalString(i int) *string {
	if a.value(i, nil) == nil {
		return nil
	}
	s := a.str(i, "")
	return &s
}

func splitMethod(right bool) method[string] {
	return newMethod("sep maxsplit", func(r *renderer, s string, a boundArgs) any {
		limit := a.int(1, -1)
		sep := a.optionalString(0)
		if sep == nil {
			r.growParts(s, isSpace)
		} else {
			r.growTimes(strings.Count(s, r.separator(*sep))+1, 4*itemBytes)
		}
		switch {
		case sep == nil && right:
			return stringList(splitFieldsRight(s, limit))
		case sep == nil:
			return stringList(splitFields(s, limit))
		case right:
			return stringList(splitRight(s, *sep, limit))
		case limit < 0 || limit > int64(len(s)):
			limit = int64(len(s))
		}
		return stringList(strings.SplitN(s, *sep, int(limit)+1))
	})
}

func (r *renderer) separator(s string) string {
	if s == "" {
		r.fail("empty separator")
	}
	return s
}

// window returns the part of s between the optional arguments i and i+1, and
// how many characters come before it.
func (a boundArgs) window(s string, i int) (string, int64) {
	if a.value(i, nil) == nil && a.value(i+1, nil) == nil {
		return s, 0
	}
	bound := func(i int) *int64 {
		if a.value(i, nil) == nil {
			return nil
		}
		n := a.int(i, 0)
		return &n
	}
	from := bound(i)
	a.r.growTimes(len(s), 4)
	chars := []rune(s)
	part := sliceOf(a.r, chars, from, bound(i+1), nil)
	offset := int64(0)
	if from != nil {
		if offset = *from; offset < 0 {
			offset = max(offset+int64(len(chars)), 0)
		}
	}
	return string(part), offset
}

func affixMethod(has func(s, affix string) bool) method[string] {
	return newMethod("affix! start end", func(r *renderer, s string, a boundArgs) any {
		s, _ = a.window(s, 1)
		l, ok := a.values[0].(*List)
		if !ok || l.kind != kindTuple {
			return has(s, a.str(0, ""))
		}
		for _, item := range r.iterate(l) {
			affix, ok := item.(string)
			if !ok {
				r.fail("a tuple of strings is needed, not of %s", typeName(item))
			}
			if has(s, affix) {
				return true
			}
		}
		return false
	})
}

func searchMethod(index func(s, sub string) int, must bool) method[string] {
	return newMethod("sub! start end", func(r *renderer, s string, a boundArgs) any {
		s, offset := a.window(s, 1)
		i := index(s, a.str(0, ""))
		if i >= 0 {
			return runeCount(s[:i]) + offset
		}
		if must {
			r.fail("substring not found")
		}
		return int64(-1)
	})
}

func padMethod(side byte) method[string] {
	return newMethod("width! fillchar", func(r *renderer, s string, a boundArgs) any {
		fill := a.str(1, " ")
		if runeCount(fill) != 1 {
			r.fail("the fill character must be exactly one character long")
		}
		return r.pad(s, a.int(0, 0), fill, side)
	})
}
