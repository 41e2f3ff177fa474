package jinja

import (
	"net/url"
	"strings"
)

// textFilter makes a filter of text without arguments.
func textFilter(f func(s string) string) filterFunc {
	return newFilter("", func(r *renderer, v any, _ boundArgs) any { return f(r.str(v)) })
}

var textFilters = map[string]filterFunc{
	"upper":      textFilter(upper),
	"lower":      textFilter(lower),
	"capitalize": textFilter(capitalize),
	"title":      textFilter(titleWords),
	"string":     textFilter(func(s string) string { return s }),
	"safe":       textFilter(func(s string) string { return s }),
	"escape":     textFilter(escapeHTML),
	"trim": newFilter("chars", func(r *renderer, v any, a boundArgs) any {
		return strip(r.str(v), a.optionalString(0), true, true)
	}),
	"replace": newFilter("old! new! count", func(r *renderer, v any, a boundArgs) any {
		count := int64(-1)
		if a.value(2, nil) != nil {
			count = a.int(2, -1)
		}
		return r.replace(r.str(v), a.text(0, ""), a.text(1, ""), count)
	}),
	"center": newFilter("width", func(r *renderer, v any, a boundArgs) any {
		return r.pad(r.str(v), a.int(0, 80), " ", 'c')
	}),
	"indent":   newFilter("width first blank", indentFilter),
	"truncate": newFilter("length killwords end leeway", truncateFilter),
	"tojson":   newFilter("ensure_ascii indent separators sort_keys", tojsonFilter),
	"wordcount": newFilter("", func(r *renderer, v any, _ boundArgs) any {
		words, inWord := int64(0), false
		for _, c := range r.str(v) {
			before := inWord
			if inWord = c == '_' || isAlnum(c); inWord && !before {
				words++
			}
		}
		return words
	}),
	"urlencode": newFilter("", urlencodeFilter),
	"format": func(r *renderer, v any, in arguments) any {
		if len(in.named) == 0 {
			return r.percent(r.str(v), newTuple(in.pos...))
		}
		d := NewDict()
		for _, a := range in.named {
			d.Set(a.name, a.value)
		}
		return r.percent(r.str(v), d)
	},
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

func escapeHTML(s string) string { return htmlEscapes.Replace(s) }

func tojsonFilter(r *renderer, v any, a boundArgs) any {
	s := &jsonStyle{ascii: a.bool(0), sortKeys: a.bool(3), itemSep: ", ", keySep: ": "}
	switch indent := a.value(1, nil).(type) {
	case nil:
	case string:
		s.multiline, s.indent, s.itemSep = true, indent, ","
	default:
		s.multiline, s.indent, s.itemSep = true, r.repeat(" ", r.integer(indent)), ","
	}
	if pair := a.value(2, nil); pair != nil {
		separators := r.iterate(pair)
		if len(separators) != 2 {
			r.fail("separators must be a pair")
		}
		s.itemSep, s.keySep = r.str(separators[0]), r.str(separators[1])
	}
	w := writer{r: r}
	w.json(v, s, 0)
	return w.String()
}

func indentFilter(r *renderer, v any, a boundArgs) any {
	indent, ok := a.value(0, int64(4)).(string)
	if !ok {
		indent = r.repeat(" ", a.int(0, 4))
	}
	// A newline at the end gives one more line, which is empty.
	text := r.str(v) + "\n"
	r.growParts(text, isLineEnd)
	lines := splitLines(text, false)
	r.growTimes(len(lines), itemBytes+len(indent)+1)
	for i, line := range lines {
		first := i == 0 && a.bool(1)
		if first || i > 0 && (line != "" || a.bool(2)) {
			lines[i] = indent + line
		}
	}
	return r.join(lines, "\n")
}

func truncateFilter(r *renderer, v any, a boundArgs) any {
	s := r.str(v)
	end := a.text(2, "...")
	length, leeway := a.int(0, 255), int64(5)
	if a.value(3, nil) != nil {
		leeway = a.int(3, 0)
	}
	if length < runeCount(end) || leeway < 0 {
		r.fail("truncate needs a length of at least that of %q", end)
	}
	if n := runeCount(s); n <= length || n-length <= leeway {
		return s
	}
	r.growTimes(len(s), 4)
	cut := string([]rune(s)[:length-runeCount(end)])
	if !a.bool(1) {
		if i := strings.LastIndexByte(cut, ' '); i >= 0 {
			cut = cut[:i]
		}
	}
	return cut + end
}

func urlencodeFilter(r *renderer, v any, _ boundArgs) any {
	d, ok := v.(*Dict)
	if !ok {
		return plainPath.Replace(url.QueryEscape(r.str(v)))
	}
	var parts []string
	for _, e := range d.entries {
		parts = append(parts, url.QueryEscape(r.str(e.key))+"="+url.QueryEscape(r.str(e.value)))
	}
	return r.join(parts, "&")
}

// plainPath turns a form's escapes into those of a path.
var plainPath = strings.NewReplacer("+", "%20", "%2F", "/")
