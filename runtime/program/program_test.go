package program

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
)

// tensor is what fakeWeights know of a tensor.
type tensor struct {
	dtype bindings.DType
	shape []int
}

type fakeWeights struct {
	tensors map[string]tensor
	quants  map[string]Quant
}

func (w fakeWeights) Lookup(name string) (bindings.DType, []int, bool) {
	t, ok := w.tensors[name]
	return t.dtype, t.shape, ok
}

func (w fakeWeights) Quantization(module string) (Quant, bool) {
	q, ok := w.quants[module]
	return q, ok
}

// checkpoint has dense projections q (4 rows), k and v (2 rows) over 8 features, and a quantized one over 64.
func checkpoint() fakeWeights {
	return fakeWeights{
		tensors: map[string]tensor{
			"q.weight":       {bindings.BF16, []int{4, 8}},
			"k.weight":       {bindings.BF16, []int{2, 8}},
			"v.weight":       {bindings.BF16, []int{2, 8}},
			"half.weight":    {bindings.F16, []int{2, 8}},
			"biased.weight":  {bindings.BF16, []int{2, 8}},
			"biased.bias":    {bindings.BF16, []int{2}},
			"badbias.weight": {bindings.BF16, []int{2, 8}},
			"badbias.bias":   {bindings.BF16, []int{3}},
			"norm.weight":    {bindings.F32, []int{8}},
			"packed.weight":  {bindings.U32, []int{6, 8}},
			"packed.scales":  {bindings.F16, []int{6, 2}},
			"packed.biases":  {bindings.F16, []int{6, 2}},
			"mx.weight":      {bindings.U32, []int{6, 8}},
			"mx.scales":      {bindings.U8, []int{6, 2}},
			"nobias.weight":  {bindings.U32, []int{6, 8}},
			"nobias.scales":  {bindings.F16, []int{6, 2}},
			"ids.weight":     {bindings.U32, []int{6, 8}},
		},
		quants: map[string]Quant{},
	}
}

func newTestBuilder() (*Builder, *Value) {
	b := NewBuilder(checkpoint(), bindings.F32, Limits{Tokens: 4, Rows: 2, Sequences: 2})
	return b, b.Input("x", bindings.F32, bindings.AxisTokens, 8)
}

func TestBuilderNamesTheLayerOfTheFirstMistake(t *testing.T) {
	for name, c := range map[string]struct {
		record func(b *Builder, x *Value)
		want   string
	}{
		"missing tensor":  {func(b *Builder, x *Value) { b.Linear(x, "layers.3.q", 4) }, "layers.3.q: linear: the checkpoint has no tensor layers.3.q.weight"},
		"wrong shape":     {func(b *Builder, x *Value) { b.Linear(x, "q", 5) }, "q: linear: q.weight has shape [4 8], the configuration asks for [5 8]"},
		"bias shape":      {func(b *Builder, x *Value) { b.Linear(x, "badbias", 2) }, "badbias: linear: the bias has shape [3], want [2]"},
		"packed, no form": {func(b *Builder, x *Value) { b.Linear(x, "ids", 6) }, "ids: linear: ids.weight is u32 and has no scales"},
		"no biases": {func(b *Builder, _ *Value) { b.Linear(b.Input("y", bindings.F32, bindings.AxisTokens, 64), "nobias", 6) },
			"nobias: linear: the checkpoint has no tensor nobias.biases"},
		"norm": {func(b *Builder, x *Value) { b.RMSNorm(b.Reshape(x, 2, 4), "norm", 1e-5) },
			"norm: rms_norm: the weight has shape [8], want [4]"},
		"add":     {func(b *Builder, x *Value) { b.Label("layers.1"); b.Add(x, b.Linear(x, "q", 4)) }, "layers.1: add: f32[T,8] and f32[T,4] differ"},
		"reshape": {func(b *Builder, x *Value) { b.Label("layers.2"); b.Reshape(x, 3) }, "layers.2: reshape: f32[T,8] to f32[T,3]"},
		"slice":   {func(b *Builder, x *Value) { b.Label("a"); b.Slice(x, 4, 5) }, "a: slice: [4:9] of f32[T,8]"},
		"rope":    {func(b *Builder, x *Value) { b.Label("a"); b.Rope(x, x, Rope{Dims: 3}) }, "a: rope: cannot turn 3 of 8 dimensions"},
		"experts": {func(b *Builder, x *Value) { b.Label("a"); b.Route(x, 9, true) }, "a: route: 9 of 8 experts"},
	} {
		t.Run(name, func(t *testing.T) {
			b, x := newTestBuilder()
			c.record(b, x)
			b.Output("later", b.Add(b.Linear(x, "q", 4), b.Linear(x, "k", 2))) // a later mistake is not the one reported
			_, err := b.Program()
			require.EqualError(t, err, c.want)
		})
	}
}

func TestQuantizationIsInferredWhereTheConfigurationIsSilent(t *testing.T) {
	b, _ := newTestBuilder()
	x := b.Input("y", bindings.F32, bindings.AxisTokens, 64)
	b.Output("a", b.Linear(x, "packed", 6))
	b.Output("b", b.Linear(x, "mx", 6))
	p, err := b.Program()
	require.NoError(t, err)
	require.Equal(t, []int64{int64(bindings.QuantAffine), 4, 32}, p.Ops[0].Attributes)
	require.Equal(t, []int64{int64(bindings.QuantMXFP4), 4, 32}, p.Ops[1].Attributes)

	// What the configuration states must fit the shapes.
	w := checkpoint()
	w.quants["packed"] = Quant{bindings.QuantAffine, 8, 32}
	b = NewBuilder(w, bindings.F32, Limits{Tokens: 4})
	b.Linear(b.Input("y", bindings.F32, bindings.AxisTokens, 64), "packed", 6)
	_, err = b.Program()
	require.ErrorContains(t, err, "packed.weight has shape [6 8], the configuration asks for [6 16] ([6 64] in affine 8 bit, group 32)")
	w.quants["packed"] = Quant{bindings.QuantAffine, 7, 32}
	b = NewBuilder(w, bindings.F32, Limits{Tokens: 4})
	b.Linear(b.Input("y", bindings.F32, bindings.AxisTokens, 64), "packed", 6)
	_, err = b.Program()
	require.ErrorContains(t, err, "there is no quantization with mode affine, 7 bits and groups of 32")
}

func TestJoinLinears(t *testing.T) {
	b, x := newTestBuilder()
	q, k, v := b.Linear(x, "q", 4), b.Linear(x, "k", 2), b.Linear(x, "v", 2)
	half, biased := b.Linear(x, "half", 2), b.Linear(x, "biased", 2)
	b.Output("q", q)
	b.Output("kv", b.Add(k, v))
	b.Output("half", half)
	b.Output("biased", biased)
	p, err := b.Program()
	require.NoError(t, err)
	Optimize(p)
	// half is stored in another type and biased has a bias: they stay on their own.
	require.Equal(t, `program for up to T=4 tokens, R=2 rows, S=2 sequences
input x f32[T,8]
%0 = linear(x, q.weight + k.weight + v.weight, -, -, -; dense) f32[T,8]  # q
%1 = slice(%0; start 0, size 4) f32[T,4]  # q
%2 = slice(%0; start 4, size 2) f32[T,2]  # k
%3 = slice(%0; start 6, size 2) f32[T,2]  # v
%4 = linear(x, half.weight, -, -, -; dense) f32[T,2]  # half
%5 = linear(x, biased.weight, -, -, biased.bias; dense) f32[T,2]  # biased
%6 = add(%2, %3) f32[T,2]
output q = %1
output kv = %6
output half = %4
output biased = %5
`, p.String())
	require.Equal(t, []int{8, 8}, p.Ops[0].Inputs[1].Type.Shape)
	require.Len(t, p.Weights, 4)
}

func TestDropNoOpsAndUnused(t *testing.T) {
	b, x := newTestBuilder()
	y := b.Reshape(b.Reshape(x, 2, 4), 8)      // back to x
	y = b.Slice(b.Cast(y, bindings.F32), 0, 8) // nothing
	b.Linear(y, "q", 4)                        // unused
	b.Output("y", b.Add(y, x))
	b.StoreTokens(b.Argmax(x), b.Input("slots", bindings.I32, bindings.AxisTokens)) // an effect stays
	p, err := b.Program()
	require.NoError(t, err)
	Optimize(p)
	require.Equal(t, `program for up to T=4 tokens, R=2 rows, S=2 sequences
input x f32[T,8]
input slots i32[T]
%0 = add(x, x) f32[T,8]
%1 = argmax(x) i32[T]
store_tokens(%1, slots)
output y = %0
`, p.String())
	require.Empty(t, p.Weights)
}

func TestEncode(t *testing.T) {
	b, x := newTestBuilder()
	b.Output("y", b.RMSNorm(b.Linear(x, "biased", 2), "norm2", 1e-5))
	_, err := b.Program()
	require.Error(t, err)

	b, x = newTestBuilder()
	b.Output("y", b.RMSNorm(x, "norm", 0.5))
	p, err := b.Program()
	require.NoError(t, err)
	words := p.Encode(func(w *Weight) int64 {
		require.Equal(t, "norm.weight:f32", w.Key())
		return 7
	})
	require.Equal(t, []int64{
		bindings.ProgramMagic, bindings.ProgramVersion, 1, 1, 1, 1, 4, 2, 2,
		int64(bindings.F32), int64(bindings.AxisTokens), 2, 4, 8, // x
		7, // the weight
		int64(bindings.OpRMSNorm), 2, 0, 1, 1, 0x3fe0000000000000, 1, int64(bindings.F32), int64(bindings.AxisTokens), 2, 4, 8,
		2, // the output
	}, words)
}

func TestKeysTellWeightsApart(t *testing.T) {
	keys := map[string]bool{}
	for _, w := range []*Weight{
		{Tensors: []string{"a"}, Resident: bindings.F32},
		{Tensors: []string{"a"}, Resident: bindings.BF16},
		{Tensors: []string{"a", "b"}, Resident: bindings.F32},
		{Constant: []float32{1, 2}, Resident: bindings.F32},
		{Constant: []float32{1, 3}, Resident: bindings.F32},
	} {
		require.False(t, keys[w.Key()], w.Key())
		keys[w.Key()] = true
	}
}
