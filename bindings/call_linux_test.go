package bindings

import (
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
)

// libcContext is a context whose every function is the C library's abs, which
// answers OK for the handle 0: real calls that do nothing.
func libcContext(t testing.TB) *Context {
	abs, err := purego.Dlsym(purego.RTLD_DEFAULT, "abs")
	require.NoError(t, err)
	l := &Library{}
	for i := range l.table {
		l.table[i] = abs
	}
	return &Context{caller: *l.caller(), library: l}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	c := libcContext(t)
	p, r := Program{ctx: c}, NewRun(8, 2)
	ids, offsets, logits := make([]int32, 8), make([]int32, 2), make([]float32, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r.Tokens, r.Rows, r.Sequences = 8, 1, 1
		SetInput(r, 0, ids)
		SetInput(r, 1, offsets)
		for i := 2; i < 8; i++ {
			SetInput(r, i, ids[:8-i])
		}
		if err := p.Run(r); err != nil {
			t.Fatal(err)
		}
		v := r.Output(0)
		if err := ReadInto(v, logits); err != nil {
			t.Fatal(err)
		}
		if err := v.Free(); err != nil {
			t.Fatal(err)
		}
	}))
}

// A status is 32 bits wide; what else the register holds must not count.
func TestStatusIs32Bits(t *testing.T) {
	c := libcContext(t)
	require.NoError(t, Value{c, 5 << 32}.Free())
	require.ErrorIs(t, Value{c, 3}.Free(), ErrProgram)
}

func BenchmarkCall(b *testing.B) {
	v := Value{ctx: libcContext(b)}
	b.ReportAllocs()
	for b.Loop() {
		_ = v.Free()
	}
}

func BenchmarkRun(b *testing.B) {
	p, r := Program{ctx: libcContext(b)}, NewRun(8, 1)
	for i := range r.inputs {
		SetInput(r, i, make([]int32, 64))
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = p.Run(r)
	}
}
