package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// writer collects text on the render's account.
type writer struct {
	r *renderer
	b strings.Builder
}

func (w *writer) text(s string) {
	w.r.grow(len(s))
	if w.b.Len()+len(s) > w.r.limits.Output {
		w.r.limit("text is longer than %d bytes", w.r.limits.Output)
	}
	w.b.WriteString(s)
}

// String returns what was written.
func (w *writer) String() string { return w.b.String() }

// visit accounts for one value that sits depth levels deep in another.
func (w *writer) visit(depth int) {
	w.r.spend(1)
	if depth > maxValueDepth {
		w.r.limit("value is nested more than %d deep", maxValueDepth)
	}
}

// str is Python's str(v), with nothing for an undefined value.
func (r *renderer) str(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case *undefined:
		return ""
	}
	w := writer{r: r}
	w.repr(v, 0)
	return w.String()
}

func (r *renderer) repr(v any) string {
	w := writer{r: r}
	w.repr(v, 0)
	return w.String()
}

// repr writes Python's repr(v).
func (w *writer) repr(v any, depth int) {
	w.visit(depth)
	switch x := v.(type) {
	case nil:
		w.text("None")
	case *undefined:
		w.text("Undefined")
	case bool:
		if x {
			w.text("True")
		} else {
			w.text("False")
		}
	case int64:
		w.text(strconv.FormatInt(x, 10))
	case *big.Int:
		w.r.spend(x.BitLen() / 16)
		w.text(x.String())
	case float64:
		w.text(formatFloat(x))
	case string:
		w.reprString(x)
	case *List:
		w.reprList(x, depth)
	case *Dict:
		w.reprDict(x, depth)
	case *namespace:
		w.text("<Namespace ")
		w.reprDict(x.attrs, depth)
		w.text(">")
	case *macro:
		w.text("<Macro '" + x.node.name + "'>")
	case object:
		w.text(x.String())
	case *callable:
		w.text("<function " + x.name + ">")
	default:
		w.r.fail("the variables hold a Go value of type %T", v)
	}
}

func (w *writer) reprList(l *List, depth int) {
	switch l.kind {
	case kindRange, kindIterator:
		w.text(l.label)
		return
	case kindView:
		w.text(l.label + "([")
		defer w.text("])")
	case kindTuple:
		w.text("(")
		if len(l.items) == 1 {
			defer w.text(",)")
		} else {
			defer w.text(")")
		}
	default:
		w.text("[")
		defer w.text("]")
	}
	for i, item := range l.items {
		if i > 0 {
			w.text(", ")
		}
		w.repr(item, depth+1)
	}
}

func (w *writer) reprDict(d *Dict, depth int) {
	w.text("{")
	for i, e := range d.entries {
		if i > 0 {
			w.text(", ")
		}
		w.repr(e.key, depth+1)
		w.text(": ")
		w.repr(e.value, depth+1)
	}
	w.text("}")
}

func (w *writer) reprString(s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	w.text(string(quote))
	plain := 0
	for i, c := range s {
		escaped := ""
		switch {
		case c == quote || c == '\\':
			escaped = `\` + string(c)
		case c == '\n':
			escaped = `\n`
		case c == '\r':
			escaped = `\r`
		case c == '\t':
			escaped = `\t`
		case unicode.IsPrint(c):
			continue
		case c < 0x100:
			escaped = fmt.Sprintf(`\x%02x`, c)
		case c < 0x10000:
			escaped = fmt.Sprintf(`\u%04x`, c)
		default:
			escaped = fmt.Sprintf(`\U%08x`, c)
		}
		w.text(s[plain:i])
		w.text(escaped)
		plain = i + len(string(c))
	}
	w.text(s[plain:])
	w.text(string(quote))
}

// formatFloat prints a float as Python does: the shortest digits that read
// back the same, always with a point or an exponent.
func formatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if exponent < -4 || exponent >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
