package jinja

import (
	"math/big"
	"unicode"
)

// testFunc is a test, as in {{ x is defined }}.
type testFunc func(r *renderer, v any, in arguments) bool

var tests map[string]testFunc

func init() { // not in the declaration: tests call tests
	tests = map[string]testFunc{
		"defined":     plainTest(func(v any) bool { return !isUndefined(v) }),
		"undefined":   plainTest(isUndefined),
		"none":        plainTest(func(v any) bool { return v == nil }),
		"true":        plainTest(func(v any) bool { return v == true }),
		"false":       plainTest(func(v any) bool { return v == false }),
		"boolean":     plainTest(isType[bool]),
		"float":       plainTest(isType[float64]),
		"string":      plainTest(isType[string]),
		"mapping":     plainTest(isType[*Dict]),
		"integer":     plainTest(func(v any) bool { return isType[int64](v) || isType[*big.Int](v) }),
		"number":      plainTest(func(v any) bool { _, ok := number(v); return ok }),
		"sequence":    plainTest(isSequence),
		"iterable":    plainTest(func(v any) bool { return isSequence(v) || isType[*List](v) }),
		"callable":    plainTest(isCallable),
		"escaped":     plainTest(func(any) bool { return false }),
		"filter":      nameTest(func(name string) bool { return filters[name] != nil }),
		"test":        nameTest(func(name string) bool { return tests[name] != nil }),
		"odd":         remainderTest("odd", 1),
		"even":        remainderTest("even", 0),
		"divisibleby": argTest("divisibleby", func(r *renderer, v, by any) bool { return r.equal(r.remainder(v, by), int64(0)) }),
		"in":          argTest("in", func(r *renderer, v, container any) bool { return r.contains(container, v) }),
		"sameas":      argTest("sameas", (*renderer).identical),
		"lower":       caseTest(func(s string) bool { return hasCase(s, unicode.IsLower) }),
		"upper":       caseTest(func(s string) bool { return hasCase(s, unicode.IsUpper) }),
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"},
		"!=": {"!=", "ne"},
		"<":  {"<", "lt", "lessthan"},
		"<=": {"<=", "le"},
		">":  {">", "gt", "greaterthan"},
		">=": {">=", "ge"},
	} {
		for _, name := range names {
			tests[name] = argTest(name, func(r *renderer, a, b any) bool { return r.compare(op, a, b) })
		}
	}
}

func isType[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func isSequence(v any) bool {
	switch x := v.(type) {
	case string, *Dict, *undefined:
		return true
	case *List:
		return x.indexable()
	}
	return false
}

func isCallable(v any) bool {
	switch v.(type) {
	case *callable, *macro, *loop, *undefined:
		return true
	}
	return false
}

var (
	noArgs = parseSignature("")
	oneArg = parseSignature("other!")
)

func plainTest(f func(v any) bool) testFunc {
	return func(r *renderer, v any, in arguments) bool {
		noArgs.bind(r, "test", in)
		return f(v)
	}
}

func argTest(name string, f func(r *renderer, v, arg any) bool) testFunc {
	return func(r *renderer, v any, in arguments) bool {
		return f(r, v, oneArg.bind(r, name, in).values[0])
	}
}

func nameTest(f func(name string) bool) testFunc {
	return plainTest(func(v any) bool {
		name, ok := v.(string)
		return ok && f(name)
	})
}

func remainderTest(name string, want int64) testFunc {
	return func(r *renderer, v any, in arguments) bool {
		noArgs.bind(r, name, in)
		return r.equal(r.remainder(v, int64(2)), want)
	}
}

func (r *renderer) remainder(a, b any) any {
	r.mustDefine(a, b)
	return r.arithmetic("%", a, b)
}

func caseTest(f func(s string) bool) testFunc {
	return func(r *renderer, v any, in arguments) bool {
		noArgs.bind(r, "test", in)
		return f(r.str(v))
	}
}
