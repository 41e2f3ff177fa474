package jinja

import (
	"math"
	"math/big"
	"strings"
)

// percent is Python's format % values.
func (r *renderer) percent(format string, values any) string {
	p := &percentFormat{r: r, values: []any{values}}
	if l, ok := values.(*List); ok && l.kind == kindTuple {
		p.values = l.items
	}
	if d, ok := values.(*Dict); ok {
		p.dict = d
	}
	w := writer{r: r}
	for format != "" {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			w.text(format)
			break
		}
		w.text(format[:i])
		var text string
		text, format = p.directive(format[i+1:])
		w.text(text)
	}
	if p.next < len(p.values) && p.dict == nil {
		r.fail("not all arguments converted during string formatting")
	}
	return w.String()
}

type percentFormat struct {
	r      *renderer
	values []any
	next   int
	dict   *Dict // for %(name)s
}

// directive formats one directive, whose % is taken already, and returns the
// rest of the format.
func (p *percentFormat) directive(s string) (text, rest string) {
	r := p.r
	name, named := "", false
	if strings.HasPrefix(s, "(") {
		if name, s, named = strings.Cut(s[1:], ")"); !named {
			r.fail("incomplete format key")
		}
	}
	spec := formatSpec{fill: " ", precision: -1}
	zero := false
	for s != "" && strings.IndexByte("-+ #0", s[0]) >= 0 {
		switch c := s[0]; c {
		case '-':
			spec.align = '<'
		case '+':
			spec.sign = '+'
		case ' ':
			if spec.sign == 0 {
				spec.sign = ' '
			}
		case '#':
			spec.alternate = true
		case '0':
			zero = true
		}
		s = s[1:]
	}
	spec.width = int64(r.formatNumber(&s, 0))
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		spec.precision = r.formatNumber(&s, 0)
	}
	if s == "" {
		r.fail("incomplete format")
	}
	verb := s[0]
	if verb == '%' {
		return "%", s[1:]
	}
	if spec.align == 0 {
		spec.align = '>'
		if zero && verb != 's' && verb != 'r' {
			spec.fill, spec.align = "0", '='
		}
	}
	return p.value(p.argument(name, named), verb, spec), s[1:]
}

func (p *percentFormat) argument(name string, named bool) any {
	r := p.r
	if named {
		if p.dict == nil {
			r.fail("format requires a mapping")
		}
		v, ok := p.dict.get(name)
		if !ok {
			r.fail("the format names %q, which is not given", name)
		}
		return v
	}
	if p.next >= len(p.values) {
		r.fail("not enough arguments for format string")
	}
	p.next++
	return p.values[p.next-1]
}

func (p *percentFormat) value(v any, verb byte, spec formatSpec) string {
	r := p.r
	switch verb {
	case 's', 'r':
		text := r.str(v)
		if verb == 'r' {
			text = r.repr(v)
		}
		return r.formatText(text, spec)
	case 'd', 'i', 'u':
		f, ok := v.(float64)
		if ok && !math.IsInf(f, 0) && !math.IsNaN(f) { // %d cuts floats off
			i, _ := big.NewFloat(f).Int(nil)
			v = normalInt(i)
		}
		spec.verb = 'd'
	case 'x', 'X', 'o', 'c', 'e', 'E', 'f', 'F', 'g', 'G':
		spec.verb = verb
	default:
		r.fail("unsupported format character %q", string(verb))
	}
	if spec.precision >= 0 && strings.IndexByte("dxXo", spec.verb) >= 0 {
		r.fail("a precision for integers is not supported")
	}
	return r.formatValue(v, spec)
}
