// Package program holds what a model computes as data: a list of ops over inputs, weights and state, recorded once in
// Go and then run by a backend library (see mlxshim.h for the meaning of every op).
//
// A [Builder] records ops with their shapes and dtypes and reports the first mistake with the label of the layer that
// made it. [Optimize] runs the passes that every backend profits from, [Program.String] prints, and [Program.Encode]
// writes the words that the C ABI takes. Nothing here needs a library.
//
// Shapes are concrete, but for the first dimension of a value that counts tokens, rows or sequences: there the shape
// holds what the program was recorded for, and a run may have fewer.
package program

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"mlxcel/bindings"
)

// Type is the dtype and shape of a value. Axis says what the first dimension counts.
type Type struct {
	DType bindings.DType
	Axis  bindings.Axis
	Shape []int
}

// Last returns the last dimension.
func (t Type) Last() int { return t.Shape[len(t.Shape)-1] }

// Elements returns the number of elements.
func (t Type) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// withLast returns t with another last dimension.
func (t Type) withLast(n int) Type {
	t.Shape = slices.Clone(t.Shape)
	t.Shape[len(t.Shape)-1] = n
	return t
}

func (t Type) equal(u Type) bool {
	return t.DType == u.DType && t.Axis == u.Axis && slices.Equal(t.Shape, u.Shape)
}

var axisNames = map[bindings.Axis]string{
	bindings.AxisTokens: "T", bindings.AxisRows: "R", bindings.AxisSequences: "S", bindings.AxisOffsets: "S+1",
}

func (t Type) String() string {
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = fmt.Sprint(d)
	}
	if name, ok := axisNames[t.Axis]; ok && len(dims) > 0 {
		dims[0] = name
	}
	return t.DType.String() + "[" + strings.Join(dims, ",") + "]"
}

// Quant is the quantization of a weight; the zero Quant is a dense weight.
type Quant struct {
	Mode  bindings.QuantMode
	Bits  int
	Group int
}

func (q Quant) String() string {
	if q.Mode == bindings.QuantNone {
		return "dense"
	}
	return fmt.Sprintf("%s %d bit, group %d", q.Mode, q.Bits, q.Group)
}

// Weight names the tensors that make up one weight of a program, joined along their first dimension, or holds a
// constant. Stored is the dtype of the tensors, Resident the one to keep them in.
type Weight struct {
	Tensors  []string
	Constant []float32
	Stored   bindings.DType
	Resident bindings.DType
}

// Key identifies the weight: programs that use the same key share it.
func (w *Weight) Key() string {
	if w.Constant != nil {
		var b strings.Builder
		b.WriteString("constant:")
		for _, v := range w.Constant {
			fmt.Fprintf(&b, "%x.", math.Float32bits(v))
		}
		return b.String()
	}
	return strings.Join(w.Tensors, "+") + ":" + w.Resident.String()
}

// name is what the printer shows.
func (w *Weight) name() string {
	switch {
	case w.Constant != nil:
		return fmt.Sprintf("constant(%d)", len(w.Constant))
	case len(w.Tensors) > 3:
		return fmt.Sprintf("%s + %d more", w.Tensors[0], len(w.Tensors)-1)
	}
	return strings.Join(w.Tensors, " + ")
}

// Value is one value of a program: an input (Name), a weight, or an output of an op.
type Value struct {
	Type   Type
	Name   string  // of an input
	Weight *Weight // of a weight
	op     *Op     // that makes it, else nil
}

// Op is one step of a program. Absent optional inputs are nil. Attributes are in the order of the op's table entry,
// floats as the bits of an f64.
type Op struct {
	Code       bindings.Op
	Inputs     []*Value
	Attributes []int64
	Outputs    []*Value
	Label      string // the layer it belongs to, for messages
}

// Layer is the state that one attention layer keeps per token. Window is 0 for full attention.
type Layer struct {
	KVHeads, KeyDim, ValueDim, Window int
}

// Output is a value that a run hands back.
type Output struct {
	Name  string
	Value *Value
}

// Program is a recorded computation. Make one with a [Builder].
type Program struct {
	Inputs  []*Value
	Weights []*Value
	Ops     []*Op
	Outputs []Output
	Layers  []Layer

	MaxTokens, MaxRows, MaxSequences int
}

// attribute says how an attribute is printed: by name, as an integer or a float.
type attribute struct {
	name    string
	isFloat bool
}

// info is what program knows of an op besides its code.
type info struct {
	attributes []attribute
	effect     bool // changes state: never dropped
}

func ints(names ...string) []attribute {
	var as []attribute
	for _, n := range names {
		as = append(as, attribute{name: n})
	}
	return as
}

func floats(names ...string) []attribute {
	var as []attribute
	for _, n := range names {
		as = append(as, attribute{name: n, isFloat: true})
	}
	return as
}

// opInfo has an entry for every op that has attributes or effects.
var opInfo = map[bindings.Op]info{
	bindings.OpEmbed:        {attributes: ints("mode", "bits", "group")},
	bindings.OpLinear:       {attributes: ints("mode", "bits", "group")},
	bindings.OpExpertLinear: {attributes: ints("mode", "bits", "group")},
	bindings.OpRMSNorm:      {attributes: floats("eps")},
	bindings.OpRope:         {attributes: append(ints("dims", "traditional"), floats("base", "scale", "mscale")...)},
	bindings.OpKVWrite:      {attributes: ints("layer"), effect: true},
	bindings.OpAttend:       {attributes: append(ints("layer"), floats("scale")...)},
	bindings.OpSlice:        {attributes: ints("start", "size")},
	bindings.OpRoute:        {attributes: ints("k", "normalize")},
	bindings.OpStoreTokens:  {effect: true},
}

func floatAttribute(f float64) int64 { return int64(math.Float64bits(f)) }

// Matrix is a matrix, or a stack of them, that an op multiplies with or looks up in.
type Matrix struct {
	Weight         *Value
	Scales, Biases *Value // nil: none
	Quant          Quant
}

// Elements is the number of weights that are packed into the matrix.
func (m Matrix) Elements() int {
	n := m.Weight.Type.Elements()
	if m.Quant.Mode != bindings.QuantNone {
		n = n * 32 / m.Quant.Bits
	}
	return n
}

// Matrix returns the matrix that the op multiplies with or looks up in, if it is such an op.
func (op *Op) Matrix() (m Matrix, ok bool) {
	table := opInfo[op.Code].attributes
	if len(table) == 0 || table[0].name != "mode" {
		return m, false
	}
	i := slices.IndexFunc(op.Inputs, func(v *Value) bool { return v != nil && v.Weight != nil })
	if i < 0 {
		return m, false
	}
	q := Quant{bindings.QuantMode(op.Attributes[0]), int(op.Attributes[1]), int(op.Attributes[2])}
	return Matrix{op.Inputs[i], op.Inputs[i+1], op.Inputs[i+2], q}, true
}

// Matrices returns the matrices of an op, and its other weights as dense ones; scales and biases belong to a matrix.
func (op *Op) Matrices() []Matrix {
	if m, ok := op.Matrix(); ok {
		all := []Matrix{m}
		if bias := op.Inputs[len(op.Inputs)-1]; bias != nil && op.Code != bindings.OpEmbed {
			all = append(all, Matrix{Weight: bias})
		}
		return all
	}
	var all []Matrix
	for _, v := range op.Inputs {
		if v != nil && v.Weight != nil && v.Weight.Constant == nil {
			all = append(all, Matrix{Weight: v})
		}
	}
	return all
}
