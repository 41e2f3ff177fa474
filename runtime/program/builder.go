package program

import (
	"errors"
	"fmt"
	"slices"

	"mlxcel/bindings"
)

// Weights is where a [Builder] looks up tensors. Lookup returns false for a tensor that does not exist. Quantization
// gives the format that the configuration states for a module, false where it states none: then the shapes tell.
type Weights interface {
	Lookup(tensor string) (dtype bindings.DType, shape []int, ok bool)
	Quantization(module string) (Quant, bool)
}

// Limits is what a program is recorded for: the most tokens, rows with logits and sequences of one run.
type Limits struct {
	Tokens, Rows, Sequences int
}

// Builder records a program. Its methods check shapes and dtypes; after the first mistake they do nothing, and
// [Builder.Program] returns the error. Modules are named by their path, as in the checkpoint
// ("model.layers.3.self_attn.q_proj").
type Builder struct {
	program    *Program
	weights    Weights
	activation bindings.DType
	label      string
	known      map[string]*Value // weights by key
	err        error
}

// NewBuilder starts a program whose activations have the given dtype.
func NewBuilder(w Weights, activation bindings.DType, limits Limits) *Builder {
	return &Builder{
		program: &Program{MaxTokens: limits.Tokens, MaxRows: limits.Rows, MaxSequences: limits.Sequences},
		weights: w, activation: activation, known: map[string]*Value{},
	}
}

// Label names the layer that the next ops without weights belong to.
func (b *Builder) Label(path string) { b.label = path }

// Fail records an error of the model code itself, such as a configuration that makes no sense.
func (b *Builder) Fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// Failed reports whether there was a mistake; model code may use it to stop early.
func (b *Builder) Failed() bool { return b.err != nil }

// Program ends the recording.
func (b *Builder) Program() (*Program, error) {
	if b.err != nil {
		return nil, b.err
	}
	return b.program, nil
}

// Has reports whether the checkpoint has the tensor.
func (b *Builder) Has(tensor string) bool {
	_, _, ok := b.weights.Lookup(tensor)
	return ok
}

// broken stands for every value after a mistake, so that model code needs no checks.
var broken = &Value{Type: Type{Shape: []int{1, 1, 1}}}

func (b *Builder) fail(op bindings.Op, label, format string, args ...any) *Value {
	if b.err == nil {
		b.err = fmt.Errorf("%s: %s: %w", label, op, fmt.Errorf(format, args...))
	}
	return broken
}

func (b *Builder) emit(code bindings.Op, label string, inputs []*Value, attributes []int64, outputs ...Type) []*Value {
	if b.err != nil {
		return slices.Repeat([]*Value{broken}, len(outputs))
	}
	op := &Op{Code: code, Inputs: inputs, Attributes: attributes, Label: label}
	for _, t := range outputs {
		op.Outputs = append(op.Outputs, &Value{Type: t, op: op})
	}
	b.program.Ops = append(b.program.Ops, op)
	return op.Outputs
}

func (b *Builder) emit1(code bindings.Op, label string, inputs []*Value, attributes []int64, output Type) *Value {
	return b.emit(code, label, inputs, attributes, output)[0]
}

// Input declares an input. For an axis other than AxisFixed the first dimension is added here, from the limits.
func (b *Builder) Input(name string, dtype bindings.DType, axis bindings.Axis, shape ...int) *Value {
	if n := b.program.axisLimit(axis); n > 0 {
		shape = append([]int{n}, shape...)
	}
	v := &Value{Name: name, Type: Type{dtype, axis, shape}}
	b.program.Inputs = append(b.program.Inputs, v)
	return v
}

func (p *Program) axisLimit(axis bindings.Axis) int {
	switch axis {
	case bindings.AxisTokens:
		return p.MaxTokens
	case bindings.AxisRows:
		return p.MaxRows
	case bindings.AxisSequences:
		return p.MaxSequences
	case bindings.AxisOffsets:
		return p.MaxSequences + 1
	}
	return 0
}

// Output hands a value back from every run under a name.
func (b *Builder) Output(name string, v *Value) {
	b.program.Outputs = append(b.program.Outputs, Output{name, v})
}

// Constant is a weight whose values come from the program.
func (b *Builder) Constant(values []float32) *Value {
	return b.weight(&Weight{Constant: values, Resident: bindings.F32},
		Type{DType: bindings.F32, Shape: []int{len(values)}})
}

func (b *Builder) weight(w *Weight, t Type) *Value {
	key := w.Key()
	if v, ok := b.known[key]; ok {
		return v
	}
	v := &Value{Weight: w, Type: t}
	b.known[key] = v
	b.program.Weights = append(b.program.Weights, v)
	return v
}

// tensor looks a tensor up as a weight; it returns nil where it is absent.
func (b *Builder) tensor(name string) *Value {
	dtype, shape, ok := b.weights.Lookup(name)
	if !ok {
		return nil
	}
	return b.stored([]string{name}, dtype, shape)
}

// stored is the weight made of tensors; floats are kept in the activations' dtype.
func (b *Builder) stored(names []string, dtype bindings.DType, shape []int) *Value {
	w := &Weight{Tensors: names, Stored: dtype, Resident: dtype}
	if dtype.IsFloat() {
		w.Resident = b.activation
	}
	return b.weight(w, Type{DType: w.Resident, Shape: shape})
}

// stacked looks up one tensor per expert, or one that holds them all.
func (b *Builder) stacked(names []string) *Value {
	if len(names) == 1 {
		return b.tensor(names[0])
	}
	dtype, shape, ok := b.weights.Lookup(names[0])
	if !ok {
		return nil
	}
	for _, n := range names[1:] {
		d, s, ok := b.weights.Lookup(n)
		if !ok || d != dtype || !slices.Equal(s, shape) {
			return nil
		}
	}
	return b.stored(names, dtype, append([]int{len(names)}, shape...))
}

var errNoTensor = errors.New("the checkpoint has no tensor")

// matrix is the weight of a linear layer or an embedding, as the inputs w, scales, biases of an op.
type matrix struct {
	w, scales, biases *Value
	quant             Quant
}

func (m matrix) attributes() []int64 {
	return []int64{int64(m.quant.Mode), int64(m.quant.Bits), int64(m.quant.Group)}
}

// matrix reads the tensors of `modules` (several: one per expert) as one matrix, or stack of matrices, of the given
// shape [.., out, in], and checks that they fit it and each other.
func (b *Builder) matrix(shape []int, modules ...string) (matrix, error) {
	named := func(suffix string) *Value {
		names := make([]string, len(modules))
		for i, m := range modules {
			names[i] = m + suffix
		}
		return b.stacked(names)
	}
	name, in := modules[0], shape[len(shape)-1]
	m := matrix{w: named(".weight")}
	if m.w == nil {
		return m, fmt.Errorf("%w %s.weight", errNoTensor, name)
	}
	m.scales = named(".scales")
	if m.scales == nil {
		if !m.w.Type.DType.IsFloat() {
			return m, fmt.Errorf("%s.weight is %s and has no scales", name, m.w.Type.DType)
		}
		if !slices.Equal(m.w.Type.Shape, shape) {
			return m, fmt.Errorf("%s.weight has shape %v, the configuration asks for %v", name, m.w.Type.Shape, shape)
		}
		return m, nil
	}
	var ok bool
	if m.quant, ok = b.weights.Quantization(name); !ok {
		m.quant = inferQuant(m.w.Type, m.scales.Type, in)
	}
	if err := m.quant.check(); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	if m.w.Type.DType != bindings.U32 {
		return m, fmt.Errorf("%s.weight is %s, want u32 for a quantized weight", name, m.w.Type.DType)
	}
	wantWeight, wantScales := slices.Clone(shape), slices.Clone(shape)
	wantWeight[len(shape)-1] = in * m.quant.Bits / 32
	wantScales[len(shape)-1] = in / m.quant.Group
	if in%m.quant.Group != 0 || !slices.Equal(m.w.Type.Shape, wantWeight) {
		return m, fmt.Errorf("%s.weight has shape %v, the configuration asks for %v (%v in %s)", name, m.w.Type.Shape, wantWeight, shape, m.quant)
	}
	if !slices.Equal(m.scales.Type.Shape, wantScales) {
		return m, fmt.Errorf("%s.scales has shape %v, want %v for %s", name, m.scales.Type.Shape, wantScales, m.quant)
	}
	if m.quant.Mode != bindings.QuantAffine {
		if m.scales.Type.DType != bindings.U8 {
			return m, fmt.Errorf("%s.scales is %s, want u8 for %s", name, m.scales.Type.DType, m.quant)
		}
		return m, nil
	}
	m.biases = named(".biases")
	if m.biases == nil {
		return m, fmt.Errorf("%w %s.biases", errNoTensor, name)
	}
	if !m.biases.Type.equal(m.scales.Type) || !m.scales.Type.DType.IsFloat() {
		return m, fmt.Errorf("%s.biases is %s and scales is %s: they must be alike", name, m.biases.Type, m.scales.Type)
	}
	return m, nil
}

// inferQuant tells the format from the shapes of a packed weight and its scales, as mlx-lm does for modules that the
// configuration does not name.
func inferQuant(w, scales Type, in int) Quant {
	q := Quant{Mode: bindings.QuantAffine, Bits: w.Last() * 32 / in, Group: in / max(scales.Last(), 1)}
	if scales.DType == bindings.U8 {
		switch {
		case q.Group == 16:
			q.Mode = bindings.QuantNVFP4
		case q.Bits == 8:
			q.Mode = bindings.QuantMXFP8
		default:
			q.Mode = bindings.QuantMXFP4
		}
	}
	return q
}

// check reports a format that MLX does not have.
func (q Quant) check() error {
	ok := false
	switch q.Mode {
	case bindings.QuantAffine:
		ok = slices.Contains([]int{2, 3, 4, 5, 6, 8}, q.Bits) && slices.Contains([]int{32, 64, 128}, q.Group)
	case bindings.QuantMXFP4:
		ok = q.Bits == 4 && q.Group == 32
	case bindings.QuantMXFP8:
		ok = q.Bits == 8 && q.Group == 32
	case bindings.QuantNVFP4:
		ok = q.Bits == 4 && q.Group == 16
	}
	if !ok {
		return fmt.Errorf("there is no quantization with mode %s, %d bits and groups of %d", q.Mode, q.Bits, q.Group)
	}
	return nil
}
