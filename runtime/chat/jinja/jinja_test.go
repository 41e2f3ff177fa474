package jinja_test

import (
	"context"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/chat/jinja"
)

func TestErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct {
		source string
		line   int
		words  string
	}{
		{"a\n{{ b", 2, "not closed"},
		{"a\n\n{% if x %}\nb", 3, "ends before"},
		{"{# c\n#}\n{% for %}", 3, "expected a name"},
		{"{{ [\n1,\n2 3] }}", 3, `expected ","`},
		{"{% raw %}\n\n{% endraw %}\n{% wrong %}", 4, "wrong"},
		{"{{ 'a\nb' }}\n{{ 'c }}", 3, "string is not closed"},
		{"a\n{#", 2, "comment"},
		{"\r\n\r\n{% break %}", 3, "outside of a loop"},
	} {
		_, err := jinja.Compile(c.source)
		var syntax *jinja.SyntaxError
		require.ErrorAs(t, err, &syntax, c.source)
		require.Equal(t, c.line, syntax.Line, "%q: %v", c.source, err)
		require.Contains(t, err.Error(), c.words)
	}
	for _, c := range []struct {
		source string
		line   int
		words  string
	}{
		{"a\n{{ x.y }}", 2, "'x' is undefined"},
		{"{% macro m() %}\n{{ 1 / 0 }}\n{% endmacro %}\n\n{{ m() }}", 2, "division by zero"},
		{"{% macro m() %}x{% endmacro %}\n{{ m()\n}}\n{{ 1 // 0 }}", 4, "division by zero"},
		{"{{ 1\n\n| nosuch }}", 3, "no filter named 'nosuch'"},
		{"\n{% for i in [0] %}\n{% set x = 1 is nosuch %}{% endfor %}", 3, "no test named"},
	} {
		_, err := mustCompile(t, c.source).Render(nil)
		var failed *jinja.RenderError
		require.ErrorAs(t, err, &failed, c.source)
		require.Equal(t, c.line, failed.Line, "%q: %v", c.source, err)
		require.Contains(t, err.Error(), c.words)
	}
}

func TestRaisedError(t *testing.T) {
	_, err := mustCompile(t, "\n{{ raise_exception('no ' ~ role) }}").Render(map[string]any{"role": "system"})
	var raised *jinja.RaisedError
	require.ErrorAs(t, err, &raised)
	require.Equal(t, &jinja.RaisedError{Line: 2, Message: "no system"}, raised)
	require.Equal(t, "no system", err.Error())
}

// hostile templates would take for ever or all memory.
var hostile = map[string]string{
	"nested loops":       "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
	"doubling text":      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
	"repeated text":      "{{ 'x' * 99999999999 }}",
	"repeated list":      "{{ [1] * 99999999999 }}",
	"output":             "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
	"replace":            "{% set s = 'x' * 99999 %}{{ s.replace('', s) }}",
	"join":               "{% set s = 'x' * 99999 %}{{ s.join(range(99999)|map('string')) }}",
	"joined long texts":  "{% set s = 'x' * 999999 %}{{ ([s] * 99999)|join }}",
	"joined by a method": "{% set s = 'x' * 999999 %}{{ ''.join([s] * 99999) }}",
	"split to letters":   "{% for i in range(99999) %}{% set l = ('x ' * 499999).split() %}{% endfor %}",
	"long keys":          "{% set s = 'x' * 999999 %}{% set d = {s: 1} %}{% for i in range(99999) %}{% set y = d[s] %}{% endfor %}",
	"long tuples":        "{% set t = (1,) * 999999 %}{% for i in range(9999) %}{% set y = t in [t] %}{% endfor %}",
	"indent":             "{{ ('a\n' * 99999)|indent(99999) }}",
	"indent width":       "{{ 'a'|indent(99999999999) }}",
	"tojson indent":      "{{ [1]|tojson(indent=99999999999) }}",
	"padding":            "{{ 'a'.ljust(99999999999) }}",
	"zeros":              "{{ 'a'.zfill(99999999999) }}",
	"format width":       "{{ '{:>99999999999}'.format(1) }}",
	"percent width":      "{{ '%99999999999d' % 1 }}",
	"precision":          "{{ '%.99999999999f' % 1.5 }}",
	"center":             "{{ 'a'|center(99999999999) }}",
	"batch":              "{{ [1]|batch(99999999999, 'x')|list }}",
	"slice":              "{{ [1]|slice(99999999999)|list }}",
	"power":              "{{ 9 ** 99 ** 99 ** 99 }}",
	"power of text":      "{{ 10 ** 99999999999 }}",
	"multiplied ints":    "{% set ns = namespace(n=9) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
	"range":              "{{ range(99999999999) }}",
	"macro recursion":    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
	"caller recursion":   "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{{ caller() }}{% endmacro %}{% call m() %}{% endcall %}",
	"loop recursion":     "{% set l = [1] %}{% for x in l recursive %}{{ loop(l) }}{% endfor %}",
	"shared lists":       "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
	"shared lists JSON":  "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
	"comparing shared":   "{% set ns = namespace(l=[], m=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
	"ordering shared":    "{% set ns = namespace(l=[], m=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l < ns.m }}",
	"deep list":          "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
	"deep JSON":          "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
	"deep equality":      "{% set ns = namespace(l=[], m=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
	"scanning long text": "{% set s = 'x' * 9999999 %}{% for a in range(99999) %}{{ s.count('y') }}{{ s|length }}{{ 'y' in s }}{{ s[-1] }}{% endfor %}",
	"sorting":            "{% for i in range(999) %}{% set l = range(99999)|reverse|sort %}{% endfor %}",
	"big varargs":        "{% macro m() %}{{ varargs|length }}{% endmacro %}{% for i in range(9999) %}{{ m(*range(99999)) }}{% endfor %}",
	"namespace in it":    "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
}

func TestHostileTemplatesStop(t *testing.T) {
	for name, source := range hostile {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := mustCompile(t, source).RenderContext(context.Background(), nil, jinja.Options{
				Limits: jinja.Limits{Steps: 1_000_000, Memory: 64 << 20, Output: 1 << 20},
			})
			require.Error(t, err)
			require.ErrorIs(t, err, jinja.ErrLimit, "%v", err)
			require.Less(t, time.Since(start), 20*time.Second)
		})
	}
}

func TestContextStopsRendering(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := mustCompile(t, hostile["nested loops"]).RenderContext(ctx, nil, jinja.Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestDeepSourceIsRefused(t *testing.T) {
	for _, source := range []string{
		"{{ " + strings.Repeat("(", 100000),
		"{{ " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + " }}",
		"{{ " + strings.Repeat("not ", 10000) + "x }}",
		"{{ " + strings.Repeat("-", 10000) + "x }}",
		"{{ " + strings.Repeat("1+", 100000) + "1 }}",
		"{% for " + strings.Repeat("(", 9000) + "a" + strings.Repeat(")", 9000) + " in x %}{% endfor %}",
		strings.Repeat("{% if x %}", 10000) + strings.Repeat("{% endif %}", 10000),
		strings.Repeat("x", 2<<20),
	} {
		_, err := jinja.Compile(source)
		var syntax *jinja.SyntaxError
		require.ErrorAs(t, err, &syntax, source[:20])
	}
	// The longest chain that is let through must not overflow anything.
	out, err := mustCompile(t, "{{ 1"+strings.Repeat("+1", 9000)+" }}").Render(nil)
	require.NoError(t, err)
	require.Equal(t, "9001", out)
}

func TestValueOf(t *testing.T) {
	out, err := mustCompile(t, "{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ f }} {{ g }} {{ h }} {{ i }}").Render(map[string]any{
		"a": 3, "b": float32(1), "c": []string{"x"}, "d": map[string]any{"z": 1, "a": []any{nil, true}},
		"e": struct {
			Name string `json:"name"`
			Age  int    `json:"age"`
		}{"Bo", 3},
		"f": big.NewInt(7), "g": uint8(9), "h": []int{1}, "i": new(big.Int).Lsh(big.NewInt(1), 64),
	})
	require.NoError(t, err)
	require.Equal(t, "3 1.0 ['x'] {'a': [None, True], 'z': 1} {'name': 'Bo', 'age': 3} 7 9 [1] 18446744073709551616", out)

	_, err = mustCompile(t, "{{ a }}").Render(map[string]any{"a": func() {}})
	require.ErrorContains(t, err, "variable a")
	cyclic := map[string]any{}
	cyclic["self"] = cyclic
	_, err = jinja.ValueOf(cyclic)
	require.ErrorContains(t, err, "deep")

	d := jinja.NewDict()
	d.Set("bad", make(chan int))
	_, err = mustCompile(t, "{{ d }}").Render(map[string]any{"d": d})
	require.ErrorContains(t, err, "Go value of type chan int")
}

func TestParseJSON(t *testing.T) {
	for _, bad := range []string{"", "{", "[1", `{"a"}`, "1 2", "nul", strings.Repeat("[", 1000), strings.Repeat("9", 5000)} {
		_, err := jinja.ParseJSON([]byte(bad))
		require.ErrorContains(t, err, "bad JSON", "%.20q", bad)
	}
	v, err := jinja.ParseJSON([]byte(`{"b": 1, "a": {"d": 1.0, "c": 1e999}, "b": 2}`))
	require.NoError(t, err)
	require.Equal(t, []string{"b", "a"}, v.(*jinja.Dict).Keys())
	out, err := mustCompile(t, "{{ v }}").Render(map[string]any{"v": v})
	require.NoError(t, err)
	require.Equal(t, "{'b': 2, 'a': {'d': 1.0, 'c': inf}}", out)
}

func TestConcurrentRenders(t *testing.T) {
	tmpl := mustCompile(t, "{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}")
	vars := map[string]any{"l": []any{1, 2, 3}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				out, err := tmpl.Render(vars)
				if err != nil || out != "6" {
					t.Errorf("%q %v", out, err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzCompileRender(f *testing.F) {
	for _, s := range constructs(f) {
		f.Add(s)
	}
	for _, s := range hostile {
		f.Add(s)
	}
	vars := constructVars(f)
	limits := jinja.Limits{Steps: 20_000, Memory: 1 << 20, Output: 1 << 16, Depth: 50}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := jinja.Compile(source)
		if err != nil {
			var syntax *jinja.SyntaxError
			require.ErrorAs(t, err, &syntax)
			require.Positive(t, syntax.Line)
			return
		}
		parsed, err := jinja.ParseJSON(vars)
		require.NoError(t, err)
		values := map[string]any{}
		for _, k := range parsed.(*jinja.Dict).Keys() {
			values[k], _ = parsed.(*jinja.Dict).Get(k)
		}
		start := time.Now()
		out, err := tmpl.RenderContext(context.Background(), values, jinja.Options{Now: now, Limits: limits})
		require.Less(t, time.Since(start), 5*time.Second)
		require.LessOrEqual(t, len(out), limits.Output)
		var raised *jinja.RaisedError
		var failed *jinja.RenderError
		if err != nil && !errors.As(err, &raised) {
			require.ErrorAs(t, err, &failed)
		}
	})
}

func FuzzParseJSON(f *testing.F) {
	f.Add(`{"b": [1, 1.0, -0, 1e400, 123456789012345678901234567890], "a": {"x": null, "": true}, "b": "\ud800é\u0007"}`)
	f.Add("[[[[]]]]")
	f.Add("1e-7")
	tmpl := mustCompile(f, "{{ v | tojson }}")
	f.Fuzz(func(t *testing.T, data string) {
		v, err := jinja.ParseJSON([]byte(data))
		if err != nil {
			return
		}
		once, err := tmpl.Render(map[string]any{"v": v})
		require.NoError(t, err)
		if strings.Contains(once, "Infinity") { // as in Python, no JSON
			return
		}
		v, err = jinja.ParseJSON([]byte(once))
		require.NoError(t, err)
		twice, err := tmpl.Render(map[string]any{"v": v})
		require.NoError(t, err)
		require.Equal(t, once, twice)
	})
}

func BenchmarkRender(b *testing.B) {
	files := constructs(b)
	tmpl, err := jinja.Compile(files[len(files)-3]) // the tool template
	require.NoError(b, err)
	parsed, err := jinja.ParseJSON(constructVars(b))
	require.NoError(b, err)
	vars := map[string]any{}
	for _, k := range parsed.(*jinja.Dict).Keys() {
		vars[k], _ = parsed.(*jinja.Dict).Get(k)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(vars); err != nil {
			b.Fatal(err)
		}
	}
}

func mustCompile(t testing.TB, source string) *jinja.Template {
	t.Helper()
	tmpl, err := jinja.Compile(source)
	require.NoError(t, err, source)
	return tmpl
}
