package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

var numberFilters = map[string]filterFunc{
	"int":   newFilter("default base", intFilter),
	"float": newFilter("default", floatFilter),
	"abs":   newFilter("", absFilter),
	"round": newFilter("precision method", roundFilter),
}

func intFilter(r *renderer, v any, a boundArgs) any {
	r.mustDefine(v)
	if i, ok := bigInt(v); ok {
		return normalInt(i)
	}
	f, ok := v.(float64)
	if s, isText := v.(string); isText {
		base := a.int(1, 10)
		if i, isInt := parseInt(s, base); isInt {
			return i
		}
		f, ok = parseFloat(s)
	} else if ok && math.IsInf(f, 0) {
		r.fail("cannot convert float infinity to integer")
	}
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return a.value(0, int64(0))
	}
	i, _ := big.NewFloat(f).Int(nil)
	return normalInt(i)
}

// parseInt is Python's int(s, base).
func parseInt(s string, base int64) (any, bool) {
	s = strings.TrimFunc(s, isSpace)
	if len(s) > maxDigits || !goodUnderscores(s) || base < 0 || base == 1 || base > 36 {
		return nil, false
	}
	s = strings.ReplaceAll(s, "_", "")
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	if len(s) > 2 && s[0] == '0' && strings.IndexByte("xXoObB", s[1]) >= 0 {
		prefixBase := map[byte]int64{'x': 16, 'o': 8, 'b': 2}[s[1]|0x20]
		if base == prefixBase || base == 0 {
			base, s = prefixBase, s[2:]
		}
	}
	if s == "" || s[0] == '-' || s[0] == '+' {
		return nil, false
	}
	i, ok := new(big.Int).SetString(sign+s, int(base))
	if !ok {
		return nil, false
	}
	return normalInt(i), true
}

// parseFloat is Python's float(s); unlike Go's it knows no hexadecimal floats.
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if !goodUnderscores(s) || strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0)
}

// goodUnderscores tells whether underscores stand between digits only.
func goodUnderscores(s string) bool {
	for i := range len(s) {
		if s[i] == '_' && (i == 0 || i+1 == len(s) || !isHex(s[i-1]) || !isHex(s[i+1])) {
			return false
		}
	}
	return true
}

func floatFilter(r *renderer, v any, a boundArgs) any {
	r.mustDefine(v)
	if f, ok := number(v); ok {
		return f
	}
	if s, ok := v.(string); ok {
		if f, ok := parseFloat(s); ok {
			return f
		}
	}
	return a.value(0, 0.0)
}

func absFilter(r *renderer, v any, _ boundArgs) any {
	r.mustDefine(v)
	if i, ok := bigInt(v); ok {
		return normalInt(new(big.Int).Abs(i))
	}
	f, ok := v.(float64)
	if !ok {
		r.fail("bad operand type for abs(): '%s'", typeName(v))
	}
	return math.Abs(f)
}

func roundFilter(r *renderer, v any, a boundArgs) any {
	r.mustDefine(v)
	f, ok := number(v)
	precision := a.int(0, 0)
	if !ok {
		r.fail("type %s cannot be rounded", typeName(v))
	}
	scale := math.Pow(10, float64(precision))
	switch method := a.text(1, "common"); method {
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	case "common":
		return roundHalfEven(v, f, precision)
	default:
		r.fail("method must be common, ceil or floor, not %q", method)
		return nil
	}
}

// roundHalfEven is Python's round(v, precision): an int stays an int, and a
// float is rounded by its exact binary value.
func roundHalfEven(v any, f float64, precision int64) any {
	i, isInt := bigInt(v)
	switch {
	case isInt && (precision >= 0 || precision < -maxDigits):
		if precision < 0 {
			return int64(0)
		}
		return normalInt(i)
	case isInt:
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(-precision), nil)
		quotient, rest := new(big.Int).QuoRem(i, unit, new(big.Int))
		half := new(big.Int).Abs(new(big.Int).Lsh(rest, 1)).Cmp(unit)
		if half > 0 || half == 0 && quotient.Bit(0) == 1 {
			quotient.Add(quotient, big.NewInt(int64(i.Sign())))
		}
		return normalInt(quotient.Mul(quotient, unit))
	case precision > 330 || math.IsInf(f, 0) || math.IsNaN(f): // no float has so many digits
		return f
	case precision >= 0:
		rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
		return rounded
	case precision < -310:
		return math.Copysign(0, f)
	}
	scale := math.Pow(10, float64(-precision))
	return math.RoundToEven(f/scale) * scale
}
