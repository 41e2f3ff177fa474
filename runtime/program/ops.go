package program

import (
	"slices"

	"mlxcel/bindings"
)

// Step holds the inputs that every step of a language model has: the ragged batch. See mlxshim.h on slots, offsets and
// contexts.
type Step struct {
	Tokens     *Value // i32 [T], -2: the slot's last token
	TokenSlots *Value // i32 [T], the state slot of each token
	Positions  *Value // i32 [T]
	Slots      *Value // i32 [S]
	Offsets    *Value // i32 [S+1]
	Contexts   *Value // i32 [S]
	Rows       *Value // i32 [R], the tokens that get logits
	RowSlots   *Value // i32 [R], the state slot of each row
}

// Step declares the inputs of a step. A program recorded for no rows has no Rows and RowSlots: it only fills the state.
func (b *Builder) Step() Step {
	s := Step{
		Tokens:     b.Input("tokens", bindings.I32, bindings.AxisTokens),
		TokenSlots: b.Input("token_slots", bindings.I32, bindings.AxisTokens),
		Positions:  b.Input("positions", bindings.I32, bindings.AxisTokens),
		Slots:      b.Input("slots", bindings.I32, bindings.AxisSequences),
		Offsets:    b.Input("offsets", bindings.I32, bindings.AxisOffsets),
		Contexts:   b.Input("contexts", bindings.I32, bindings.AxisSequences),
	}
	if b.program.MaxRows > 0 {
		s.Rows = b.Input("rows", bindings.I32, bindings.AxisRows)
		s.RowSlots = b.Input("row_slots", bindings.I32, bindings.AxisRows)
	}
	return s
}

// Embed looks up ids [T] in the module's matrix [vocabulary, hidden]: [T, hidden].
func (b *Builder) Embed(ids *Value, module string, vocabulary, hidden int) *Value {
	m, err := b.matrix([]int{vocabulary, hidden}, module)
	if err != nil {
		return b.fail(bindings.OpEmbed, module, "%w", err)
	}
	return b.emit1(bindings.OpEmbed, module, []*Value{ids, m.w, m.scales, m.biases}, m.attributes(),
		Type{b.activation, ids.Type.Axis, append(slices.Clone(ids.Type.Shape), hidden)})
}

// Linear multiplies x [.., K] with the module's matrix [out, K] and adds its bias, if it has one: [.., out].
func (b *Builder) Linear(x *Value, module string, out int) *Value {
	m, err := b.matrix([]int{out, x.Type.Last()}, module)
	if err != nil {
		return b.fail(bindings.OpLinear, module, "%w", err)
	}
	bias := b.tensor(module + ".bias")
	if bias != nil && !slices.Equal(bias.Type.Shape, []int{out}) {
		return b.fail(bindings.OpLinear, module, "the bias has shape %v, want [%d]", bias.Type.Shape, out)
	}
	return b.emit1(bindings.OpLinear, module, []*Value{x, m.w, m.scales, m.biases, bias}, m.attributes(), x.Type.withLast(out))
}

// ExpertLinear multiplies x ([T, K], or [T, k, K]) with those of the matrices [experts, out, K] that indices [T, k]
// name: [T, k, out]. The experts are one module that holds them all, or one module each.
func (b *Builder) ExpertLinear(x, indices *Value, experts, out int, modules ...string) *Value {
	m, err := b.matrix([]int{experts, out, x.Type.Last()}, modules...)
	if err != nil {
		return b.fail(bindings.OpExpertLinear, modules[0], "%w", err)
	}
	t := Type{x.Type.DType, x.Type.Axis, append(slices.Clone(indices.Type.Shape), out)}
	return b.emit1(bindings.OpExpertLinear, modules[0], []*Value{x, indices, m.w, m.scales, m.biases, nil}, m.attributes(), t)
}

// RMSNorm normalises the last dimension of x and multiplies with the module's weight.
func (b *Builder) RMSNorm(x *Value, module string, eps float64) *Value {
	w := b.tensor(module + ".weight")
	if w == nil {
		return b.fail(bindings.OpRMSNorm, module, "%w %s.weight", errNoTensor, module)
	}
	if !slices.Equal(w.Type.Shape, []int{x.Type.Last()}) {
		return b.fail(bindings.OpRMSNorm, module, "the weight has shape %v, want [%d]", w.Type.Shape, x.Type.Last())
	}
	return b.emit1(bindings.OpRMSNorm, module, []*Value{x, w}, []int64{floatAttribute(eps)}, x.Type)
}

// Rope is a rotary position embedding; the zero Scale and MScale mean 1. Periods, if given, replace Base: one per
// pair of dimensions, in positions per radian.
type Rope struct {
	Dims        int
	Traditional bool
	Base        float64
	Scale       float64
	MScale      float64
	Periods     []float32
}

// Rope turns x [T, heads, D] by positions [T].
func (b *Builder) Rope(x, positions *Value, r Rope) *Value {
	d := x.Type.Last()
	if r.Dims <= 0 || r.Dims > d || r.Dims%2 != 0 {
		return b.fail(bindings.OpRope, b.label, "cannot turn %d of %d dimensions", r.Dims, d)
	}
	var periods *Value
	if r.Periods != nil {
		if len(r.Periods) != r.Dims/2 {
			return b.fail(bindings.OpRope, b.label, "%d frequencies for %d dimensions", len(r.Periods), r.Dims)
		}
		periods = b.Constant(r.Periods)
	}
	if r.Scale == 0 {
		r.Scale = 1
	}
	if r.MScale == 0 {
		r.MScale = 1
	}
	traditional := int64(0)
	if r.Traditional {
		traditional = 1
	}
	return b.emit1(bindings.OpRope, b.label, []*Value{x, positions, periods},
		[]int64{int64(r.Dims), traditional, floatAttribute(r.Base), floatAttribute(r.Scale), floatAttribute(r.MScale)}, x.Type)
}

// Attention appends k [T, kvHeads, Dk] and v [T, kvHeads, Dv] to a new state layer and attends to it with
// q [T, heads, Dk]: [T, heads, Dv]. A window of 0 is full attention.
func (b *Builder) Attention(q, k, v *Value, s Step, scale float64, window int) *Value {
	qs, ks, vs := q.Type.Shape, k.Type.Shape, v.Type.Shape
	if len(qs) != 3 || len(ks) != 3 || len(vs) != 3 || ks[1] != vs[1] || qs[2] != ks[2] || qs[1]%ks[1] != 0 {
		return b.fail(bindings.OpAttend, b.label, "queries %s, keys %s and values %s do not fit", q.Type, k.Type, v.Type)
	}
	layer := int64(len(b.program.Layers))
	b.program.Layers = append(b.program.Layers, Layer{KVHeads: ks[1], KeyDim: ks[2], ValueDim: vs[2], Window: window})
	b.emit(bindings.OpKVWrite, b.label, []*Value{k, v, s.Slots, s.Offsets, s.Contexts}, []int64{layer})
	return b.emit1(bindings.OpAttend, b.label, []*Value{q, s.Slots, s.Offsets, s.Contexts},
		[]int64{layer, floatAttribute(scale)}, Type{q.Type.DType, q.Type.Axis, []int{qs[0], qs[1], vs[2]}})
}

func (b *Builder) sameShape(code bindings.Op, x, y *Value) *Value {
	if !x.Type.equal(y.Type) {
		return b.fail(code, b.label, "%s and %s differ", x.Type, y.Type)
	}
	return b.emit1(code, b.label, []*Value{x, y}, nil, x.Type)
}

// Add is x + y.
func (b *Builder) Add(x, y *Value) *Value { return b.sameShape(bindings.OpAdd, x, y) }

// Multiply is x * y.
func (b *Builder) Multiply(x, y *Value) *Value { return b.sameShape(bindings.OpMultiply, x, y) }

// SwiGLU is silu(gate) * up.
func (b *Builder) SwiGLU(gate, up *Value) *Value { return b.sameShape(bindings.OpSwiglu, gate, up) }

// SiLU is x * sigmoid(x).
func (b *Builder) SiLU(x *Value) *Value {
	return b.emit1(bindings.OpSilu, b.label, []*Value{x}, nil, x.Type)
}

// Slice takes x[.., start:start+size].
func (b *Builder) Slice(x *Value, start, size int) *Value {
	if start < 0 || size <= 0 || start+size > x.Type.Last() {
		return b.fail(bindings.OpSlice, b.label, "[%d:%d] of %s", start, start+size, x.Type)
	}
	return b.emit1(bindings.OpSlice, b.label, []*Value{x}, []int64{int64(start), int64(size)}, x.Type.withLast(size))
}

// Reshape gives x [A, ..] other trailing dimensions.
func (b *Builder) Reshape(x *Value, trailing ...int) *Value {
	t := Type{x.Type.DType, x.Type.Axis, append([]int{x.Type.Shape[0]}, trailing...)}
	if t.Elements() != x.Type.Elements() {
		return b.fail(bindings.OpReshape, b.label, "%s to %s", x.Type, t)
	}
	return b.emit1(bindings.OpReshape, b.label, []*Value{x}, nil, t)
}

// GatherRows takes the rows [R] of x [T, D]: [R, D].
func (b *Builder) GatherRows(x, rows *Value) *Value {
	return b.emit1(bindings.OpGatherRows, b.label, []*Value{x, rows}, nil,
		Type{x.Type.DType, rows.Type.Axis, []int{rows.Type.Shape[0], x.Type.Last()}})
}

// Route picks the k experts with the largest softmax(logits [T, E]): indices i32 [T, k] and their weights [T, k],
// divided by their sum when normalize.
func (b *Builder) Route(logits *Value, k int, normalize bool) (indices, weights *Value) {
	if k <= 0 || k > logits.Type.Last() {
		return b.fail(bindings.OpRoute, b.label, "%d of %d experts", k, logits.Type.Last()), broken
	}
	n := int64(0)
	if normalize {
		n = 1
	}
	w := logits.Type.withLast(k)
	i := w
	i.DType = bindings.I32
	out := b.emit(bindings.OpRoute, b.label, []*Value{logits}, []int64{int64(k), n}, i, w)
	return out[0], out[1]
}

// Combine sums y [T, k, D] over k with weights [T, k]: [T, D].
func (b *Builder) Combine(y, weights *Value) *Value {
	s := y.Type.Shape
	if len(s) != 3 || !slices.Equal(weights.Type.Shape, s[:2]) {
		return b.fail(bindings.OpCombine, b.label, "%s with weights %s", y.Type, weights.Type)
	}
	return b.emit1(bindings.OpCombine, b.label, []*Value{y, weights}, nil, Type{y.Type.DType, y.Type.Axis, []int{s[0], s[2]}})
}

// Cast converts x.
func (b *Builder) Cast(x *Value, dtype bindings.DType) *Value {
	t := x.Type
	t.DType = dtype
	return b.emit1(bindings.OpCast, b.label, []*Value{x}, nil, t)
}

// LoadTokens replaces -2 in tokens [A] or [A, W] by the token stored last for the slot [A].
func (b *Builder) LoadTokens(tokens, slots *Value) *Value {
	return b.emit1(bindings.OpLoadTokens, b.label, []*Value{tokens, slots}, nil, tokens.Type)
}

// StoreTokens stores tokens [R] for the slots [R].
func (b *Builder) StoreTokens(tokens, slots *Value) {
	b.emit(bindings.OpStoreTokens, b.label, []*Value{tokens, slots}, nil)
}

// Penalize applies repetition, frequency and presence penalties f32 [R, 3] for the tokens of history i32 [R, W].
func (b *Builder) Penalize(logits, history, penalties *Value) *Value {
	return b.emit1(bindings.OpPenalize, b.label, []*Value{logits, history, penalties}, nil, logits.Type)
}

// Bias adds values f32 [R, B] to the logits of ids i32 [R, B].
func (b *Builder) Bias(logits, ids, values *Value) *Value {
	return b.emit1(bindings.OpBias, b.label, []*Value{logits, ids, values}, nil, logits.Type)
}

func (b *Builder) tokenPerRow(code bindings.Op, inputs ...*Value) *Value {
	t := inputs[0].Type
	return b.emit1(code, b.label, inputs, nil, Type{bindings.I32, t.Axis, t.Shape[:1]})
}

// Argmax is the id of the largest logit of each row: i32 [R].
func (b *Builder) Argmax(logits *Value) *Value { return b.tokenPerRow(bindings.OpArgmax, logits) }

// Sample draws a token per row with settings f32 [R, 5] (see MLXSHIM_OP_SAMPLE): i32 [R].
func (b *Builder) Sample(logits, settings *Value) *Value {
	return b.tokenPerRow(bindings.OpSample, logits, settings)
}
