package jinja

import (
	"math"
	"math/big"
	"strings"
)

// maxIntBits bounds the ints that arithmetic makes: Python could print no more
// digits than this.
const maxIntBits = maxDigits * 10 / 3

// smallInt returns an int that is within int64; a bool counts as one.
func smallInt(v any) (int64, bool) {
	switch x := v.(type) {
	case int64:
		return x, true
	case bool:
		return boolInt(x), true
	}
	return 0, false
}

// bigInt returns any int.
func bigInt(v any) (*big.Int, bool) {
	if i, ok := smallInt(v); ok {
		return big.NewInt(i), true
	}
	i, ok := v.(*big.Int)
	return i, ok
}

// normalInt keeps the rule that a *big.Int is beyond int64.
func normalInt(i *big.Int) any {
	if i.IsInt64() {
		return i.Int64()
	}
	return i
}

// number returns any number as a float.
func number(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f, true
	}
	i, ok := smallInt(v)
	return float64(i), ok
}

func (r *renderer) sign(negative bool, v any) any {
	r.mustDefine(v)
	if i, ok := bigInt(v); ok {
		if negative {
			i = new(big.Int).Neg(i)
		}
		return normalInt(i)
	}
	f, ok := v.(float64)
	if !ok {
		r.fail("a sign needs a number, not %s", typeName(v))
	}
	if negative {
		return -f
	}
	return f
}

// arithmetic computes a op b for + - * / // % **.
func (r *renderer) arithmetic(op string, a, b any) any {
	switch x := a.(type) {
	case string:
		if v, ok := r.stringArithmetic(op, x, b); ok {
			return r.made(v)
		}
	case *List:
		if v, ok := r.listArithmetic(op, x, b); ok {
			return v
		}
	}
	switch b.(type) {
	case string, *List:
		if _, ok := smallInt(a); ok && op == "*" {
			return r.arithmetic(op, b, a)
		}
	}
	if i, ok := bigInt(a); ok {
		if j, ok := bigInt(b); ok {
			return r.intArithmetic(op, a, b, i, j)
		}
	}
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return r.floatArithmetic(op, x, y)
		}
	}
	r.fail("unsupported operand types for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	return nil
}

func (r *renderer) stringArithmetic(op, s string, b any) (any, bool) {
	switch op {
	case "+":
		if t, ok := b.(string); ok {
			return s + t, true
		}
		r.fail(`can only concatenate str (not "%s") to str`, typeName(b))
	case "*":
		if n, ok := smallInt(b); ok {
			return r.repeat(s, n), true
		}
	case "%":
		return r.percent(s, b), true
	}
	return nil, false
}

// repeat is s * n.
func (r *renderer) repeat(s string, n int64) string {
	n = max(n, 0)
	if s == "" || n == 0 {
		return ""
	}
	if n > int64(r.limits.Output) {
		r.limit("a string is repeated %d times", n)
	}
	r.growTimes(int(n), len(s))
	return strings.Repeat(s, int(n))
}

func (r *renderer) listArithmetic(op string, l *List, b any) (any, bool) {
	if l.kind > kindTuple {
		return nil, false
	}
	out := &List{kind: l.kind}
	switch op {
	case "+":
		m, ok := b.(*List)
		if !ok || m.kind != l.kind {
			return nil, false
		}
		r.growTimes(len(l.items)+len(m.items), itemBytes)
		out.items = append(append(out.items, l.items...), m.items...)
		return out, true
	case "*":
		n, ok := smallInt(b)
		if !ok {
			return nil, false
		}
		if n = max(n, 0); n > int64(r.limits.Memory) {
			r.limit("a list is repeated %d times", n)
		}
		r.growTimes(int(n), len(l.items)*itemBytes)
		for range n {
			if len(l.items) == 0 {
				break
			}
			out.items = append(out.items, l.items...)
		}
		return out, true
	}
	return nil, false
}

// intArithmetic works on big ints throughout: templates count messages, they
// do not compute.
func (r *renderer) intArithmetic(op string, a, b any, i, j *big.Int) any {
	r.spend((i.BitLen() + j.BitLen()) / 16)
	out := new(big.Int)
	switch op {
	case "+":
		out.Add(i, j)
	case "-":
		out.Sub(i, j)
	case "*":
		out.Mul(i, j)
	case "//", "%":
		if j.Sign() == 0 {
			r.fail("division by zero")
		}
		quotient, rest := new(big.Int).QuoRem(i, j, new(big.Int))
		if rest.Sign() != 0 && rest.Sign() != j.Sign() { // Python rounds down, Go towards zero
			quotient.Sub(quotient, big.NewInt(1))
			rest.Add(rest, j)
		}
		if out = quotient; op == "%" {
			out = rest
		}
	case "**":
		if j.Sign() < 0 {
			break
		}
		if i.BitLen() > 1 && (!j.IsInt64() || j.Int64() > maxIntBits/int64(i.BitLen()-1)) {
			r.limit("%s ** %s is too large", r.str(a), r.str(b))
		}
		return normalInt(power(i, j))
	}
	if op == "/" || op == "**" {
		x, _ := number(a)
		y, _ := number(b)
		return r.floatArithmetic(op, x, y)
	}
	if out.BitLen() > maxIntBits {
		r.limit("an int has more than %d digits", maxDigits)
	}
	return normalInt(out)
}

// power is i ** j for j of any size where |i| <= 1, and small j elsewhere.
func power(i, j *big.Int) *big.Int {
	if i.BitLen() <= 1 {
		if j.Sign() == 0 || i.Sign() > 0 {
			return big.NewInt(1)
		}
		if i.Sign() < 0 {
			return big.NewInt(1 - 2*int64(j.Bit(0)))
		}
		return new(big.Int)
	}
	return new(big.Int).Exp(i, j, nil)
}

func (r *renderer) floatArithmetic(op string, x, y float64) any {
	if y == 0 && (op == "/" || op == "//" || op == "%") {
		r.fail("division by zero")
	}
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	case "//":
		return math.Floor(x / y)
	case "%":
		rest := math.Mod(x, y)
		if rest != 0 && (rest < 0) != (y < 0) {
			rest += y
		}
		return rest
	default: // "**"
		if x == 0 && y < 0 {
			r.fail("0.0 cannot be raised to a negative power")
		}
		return math.Pow(x, y)
	}
}
