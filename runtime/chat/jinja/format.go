package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatSpec is how one value is to be printed, in str.format's terms.
type formatSpec struct {
	fill      string
	align     byte // '<', '>', '^', '=' or 0
	sign      byte // '+', ' ' or 0
	alternate bool // "#"
	grouping  byte // ',' or '_' between thousands, or 0
	width     int64
	precision int  // -1 if none
	verb      byte // s d f e g x X o b c % and capitals, or 0
}

// parseSpec parses [[fill]align][sign][#][0][width][,][.precision][type].
func (r *renderer) parseSpec(text string) formatSpec {
	s := formatSpec{fill: " ", precision: -1}
	rest := text
	if _, n := utf8.DecodeRuneInString(rest); len(rest) > n && strings.IndexByte("<>^=", rest[n]) >= 0 {
		s.fill, s.align, rest = rest[:n], rest[n], rest[n+1:]
	} else if rest != "" && strings.IndexByte("<>^=", rest[0]) >= 0 {
		s.align, rest = rest[0], rest[1:]
	}
	accept := func(set string) byte {
		if rest == "" || strings.IndexByte(set, rest[0]) < 0 {
			return 0
		}
		c := rest[0]
		rest = rest[1:]
		return c
	}
	if c := accept("+- "); c != '-' {
		s.sign = c
	}
	s.alternate = accept("#") != 0
	if accept("0") != 0 && s.align == 0 {
		s.fill, s.align = "0", '='
	}
	s.width = int64(r.formatNumber(&rest, 0))
	s.grouping = accept(",_")
	if accept(".") != 0 {
		if s.precision = r.formatNumber(&rest, -1); s.precision < 0 {
			r.fail("format specifier %q is missing its precision", text)
		}
	}
	s.verb = accept("sdfFeEgGxXobcn%")
	if rest != "" {
		r.fail("invalid format specifier %q", text)
	}
	return s
}

// maxFormat bounds widths and precisions; %g of more digits than this is slow
// and of no use.
const maxFormat = 100_000

// formatNumber takes digits off the text's start.
func (r *renderer) formatNumber(text *string, otherwise int) int {
	n := 0
	for n < len(*text) && isDigit((*text)[n]) {
		n++
	}
	if n == 0 {
		return otherwise
	}
	v, err := strconv.Atoi((*text)[:n])
	if err != nil || v > maxFormat {
		r.limit("a format has the width or precision %s", (*text)[:n])
	}
	*text = (*text)[n:]
	return v
}

// formatValue prints a value by its spec.
func (r *renderer) formatValue(v any, s formatSpec) string {
	i, isInt := bigInt(v)
	f, isNumber := number(v)
	_, isBool := v.(bool)
	switch s.verb {
	case 0:
		switch {
		case isInt && !isBool:
			return r.formatInt(i, s)
		case isNumber && !isBool && s.precision < 0:
			return r.finishNumber(formatFloat(f), s)
		case isNumber && !isBool:
			s.verb = 'g'
			return r.formatFloat(f, s)
		}
	case 'd', 'x', 'X', 'o', 'b', 'n', 'c':
		if !isInt {
			r.mustDefine(v)
			r.fail("format %q needs an integer, not %s", string(s.verb), typeName(v))
		}
		return r.formatInt(i, s)
	case 'f', 'F', 'e', 'E', 'g', 'G', '%':
		if !isNumber {
			r.mustDefine(v)
			r.fail("format %q needs a number, not %s", string(s.verb), typeName(v))
		}
		return r.formatFloat(f, s)
	case 's':
		if isNumber {
			r.fail("format \"s\" needs text, not %s", typeName(v))
		}
	}
	return r.formatText(r.str(v), s)
}

func (r *renderer) formatText(text string, s formatSpec) string {
	if s.precision >= 0 && runeCount(text) > int64(s.precision) {
		text = string([]rune(text)[:s.precision])
	}
	if s.align == 0 || s.align == '=' {
		s.align = '<'
	}
	return r.pad(text, s.width, s.fill, s.align)
}

func (r *renderer) formatInt(i *big.Int, s formatSpec) string {
	base, prefix := 10, ""
	switch s.verb {
	case 'x', 'X':
		base, prefix = 16, "0x"
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	case 'c':
		if !i.IsInt64() || i.Int64() < 0 || i.Int64() > utf8.MaxRune {
			r.fail("format \"c\" needs a character's number")
		}
		return r.formatText(string(rune(i.Int64())), s)
	}
	digits := new(big.Int).Abs(i).Text(base)
	if s.alternate {
		digits = prefix + digits
	}
	if s.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	if i.Sign() < 0 {
		digits = "-" + digits
	}
	return r.finishNumber(digits, s)
}

func (r *renderer) formatFloat(f float64, s formatSpec) string {
	precision := s.precision
	if precision < 0 {
		precision = 6
	}
	switch s.verb {
	case '%':
		return r.finishNumber(strconv.FormatFloat(f*100, 'f', precision, 64)+"%", s)
	case 'g', 'G':
		precision = max(precision, 1)
	}
	verb := s.verb
	if verb == 'F' {
		verb = 'f'
	}
	text := strconv.FormatFloat(f, verb, precision, 64)
	switch text {
	case "NaN", "+Inf", "-Inf":
		text = strings.ToLower(strings.TrimPrefix(text, "+"))
	}
	return r.finishNumber(text, s)
}

// finishNumber adds sign, thousands separators and padding.
func (r *renderer) finishNumber(text string, s formatSpec) string {
	if s.grouping != 0 {
		text = groupThousands(text, string(s.grouping))
	}
	if s.sign != 0 && !strings.HasPrefix(text, "-") {
		text = string(s.sign) + text
	}
	if s.align == 0 {
		s.align = '>'
	}
	return r.pad(text, s.width, s.fill, s.align)
}

func groupThousands(text, sep string) string {
	start := strings.IndexFunc(text, func(c rune) bool { return c >= '0' && c <= '9' })
	if start < 0 {
		return text
	}
	end := start
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	var b strings.Builder
	b.WriteString(text[:start])
	for i := start; i < end; i++ {
		if i > start && (end-i)%3 == 0 {
			b.WriteString(sep)
		}
		b.WriteByte(text[i])
	}
	b.WriteString(text[end:])
	return b.String()
}

// format is str.format.
func (r *renderer) format(s string, in arguments) string {
	w := writer{r: r}
	auto := int64(0)
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			w.text(s)
			break
		}
		w.text(s[:i])
		s = s[i:]
		if strings.HasPrefix(s, "{{") || strings.HasPrefix(s, "}}") {
			w.text(s[:1])
			s = s[2:]
			continue
		}
		end := strings.IndexByte(s, '}')
		if s[0] == '}' || end < 0 {
			r.fail("a single %q in a format string", s[:1])
		}
		w.text(r.formatField(s[1:end], &auto, in))
		s = s[end+1:]
	}
	return w.String()
}

// formatField formats what stands between { and }: [name or number][.attr or
// [key]]…[!s or !r][:spec].
func (r *renderer) formatField(field string, auto *int64, in arguments) string {
	field, spec, _ := strings.Cut(field, ":")
	field, conversion, converted := strings.Cut(field, "!")
	end := strings.IndexAny(field, ".[")
	if end < 0 {
		end = len(field)
	}
	name, path := field[:end], field[end:]
	v := r.formatArgument(name, auto, in)
	for path != "" {
		v, path = r.formatStep(v, path)
	}
	if converted {
		switch conversion {
		case "s":
			v = r.str(v)
		case "r":
			v = r.repr(v)
		default:
			r.fail("unknown conversion %q in a format string", conversion)
		}
	}
	if spec == "" {
		return r.str(v)
	}
	return r.formatValue(v, r.parseSpec(spec))
}

func (r *renderer) formatArgument(name string, auto *int64, in arguments) any {
	index := *auto
	if name == "" {
		*auto++
	} else if n, err := strconv.ParseInt(name, 10, 32); err == nil {
		index = n
	} else if v, ok := in.get(name); ok {
		return v
	} else {
		r.fail("the format string names %q, which is not given", name)
	}
	if index < 0 || index >= int64(len(in.pos)) {
		r.fail("replacement index %d out of range for positional arguments", index)
	}
	return in.pos[index]
}

// formatStep follows one ".attr" or "[key]" of a field's path.
func (r *renderer) formatStep(v any, path string) (any, string) {
	if path[0] == '.' {
		end := strings.IndexAny(path[1:], ".[")
		if end < 0 {
			end = len(path) - 1
		}
		return r.attribute(v, path[1:1+end]), path[1+end:]
	}
	end := strings.IndexByte(path, ']')
	if path[0] != '[' || end < 0 {
		r.fail("bad field %q in a format string", path)
	}
	var key any = path[1:end]
	if n, err := strconv.ParseInt(path[1:end], 10, 64); err == nil {
		key = n
	}
	return r.item(v, key), path[end+1:]
}
