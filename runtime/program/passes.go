package program

import (
	"slices"

	"mlxcel/bindings"
)

// Pass is a named rewrite of a program that keeps what it computes.
type Pass struct {
	Name string
	Run  func(*Program)
}

// Passes are run by [Optimize] in this order. What is unused goes last: then the weights of a program that only fills
// the state, which lacks the last query, are joined as in the programs that use them all.
var Passes = []Pass{
	{"drop no-ops", dropNoOps},
	{"join linears", joinLinears},
	{"remove unused", removeUnused},
}

// Optimize runs all passes on p.
func Optimize(p *Program) {
	for _, pass := range Passes {
		pass.Run(p)
	}
}

// replace makes every use of the keys a use of what they map to.
func (p *Program) replace(with map[*Value]*Value) {
	resolve := func(v *Value) *Value {
		for {
			w, ok := with[v]
			if !ok {
				return v
			}
			v = w
		}
	}
	for _, op := range p.Ops {
		for i, v := range op.Inputs {
			op.Inputs[i] = resolve(v)
		}
	}
	for i := range p.Outputs {
		p.Outputs[i].Value = resolve(p.Outputs[i].Value)
	}
}

// dropNoOps removes reshapes, slices and casts that change nothing, and merges a reshape of a reshape.
func dropNoOps(p *Program) {
	same := map[*Value]*Value{}
	for _, op := range p.Ops {
		switch op.Code {
		case bindings.OpReshape, bindings.OpSlice, bindings.OpCast:
			in := op.Inputs[0]
			if in.op != nil && in.op.Code == bindings.OpReshape && op.Code == bindings.OpReshape {
				in = in.op.Inputs[0]
				op.Inputs[0] = in
			}
			if in.Type.equal(op.Outputs[0].Type) {
				same[op.Outputs[0]] = in
			}
		}
	}
	p.replace(same)
}

// joinKey is what linears must share to be computed as one.
type joinKey struct {
	x                 *Value
	mode, bits, group int64
	stored            [5]bindings.DType // of the weights among the inputs, 0 where there is none
}

func keyOf(op *Op) joinKey {
	k := joinKey{x: op.Inputs[0], mode: op.Attributes[0], bits: op.Attributes[1], group: op.Attributes[2]}
	for i, v := range op.Inputs {
		if v != nil && v.Weight != nil {
			k.stored[i] = v.Weight.Stored
		}
	}
	return k
}

// joinLinears replaces linears of one input and format (q, k and v; gate and up) by one whose matrix holds all rows:
// a larger product and fewer launches. It is exact, since every row of a matrix is its own product.
func joinLinears(p *Program) {
	groups := map[joinKey][]*Op{}
	for _, op := range p.Ops {
		if op.Code == bindings.OpLinear {
			k := keyOf(op)
			groups[k] = append(groups[k], op)
		}
	}
	var ops []*Op
	for _, op := range p.Ops {
		if op.Code != bindings.OpLinear {
			ops = append(ops, op)
			continue
		}
		group := groups[keyOf(op)]
		switch {
		case len(group) == 1:
			ops = append(ops, op)
		case group[0] == op: // the first one brings the joined one; the others are dropped
			ops = append(ops, p.join(group)...)
		}
	}
	p.Ops = ops
}

// join makes one linear of several and slices that stand for the outputs of the old ones.
func (p *Program) join(group []*Op) []*Op {
	first := group[0]
	joined := &Op{Code: first.Code, Inputs: slices.Clone(first.Inputs), Attributes: first.Attributes, Label: first.Label}
	for i := 1; i < len(first.Inputs); i++ {
		if first.Inputs[i] == nil {
			continue
		}
		var parts []*Value
		for _, op := range group {
			parts = append(parts, op.Inputs[i])
		}
		joined.Inputs[i] = p.joinWeights(parts)
	}
	total := 0
	for _, op := range group {
		total += op.Outputs[0].Type.Last()
	}
	out := &Value{Type: first.Outputs[0].Type.withLast(total), op: joined}
	joined.Outputs = []*Value{out}
	ops := []*Op{joined}
	start := 0
	for _, op := range group {
		size := op.Outputs[0].Type.Last()
		slice := &Op{Code: bindings.OpSlice, Inputs: []*Value{out}, Attributes: []int64{int64(start), int64(size)},
			Outputs: op.Outputs, Label: op.Label}
		op.Outputs[0].op = slice
		ops = append(ops, slice)
		start += size
	}
	return ops
}

// joinWeights makes the weight that holds the rows of all parts.
func (p *Program) joinWeights(parts []*Value) *Value {
	w := &Weight{Stored: parts[0].Weight.Stored, Resident: parts[0].Weight.Resident}
	t := parts[0].Type
	t.Shape = slices.Clone(t.Shape)
	t.Shape[0] = 0
	for _, v := range parts {
		w.Tensors = append(w.Tensors, v.Weight.Tensors...)
		t.Shape[0] += v.Type.Shape[0]
	}
	v := &Value{Weight: w, Type: t}
	p.Weights = append(p.Weights, v)
	return v
}

// removeUnused drops ops whose results nobody uses, unless they change state, and weights that no op uses.
func removeUnused(p *Program) {
	used := map[*Value]bool{}
	for _, o := range p.Outputs {
		used[o.Value] = true
	}
	kept := make([]*Op, 0, len(p.Ops))
	for _, op := range slices.Backward(p.Ops) {
		if !opInfo[op.Code].effect && !slices.ContainsFunc(op.Outputs, func(v *Value) bool { return used[v] }) {
			continue
		}
		kept = append(kept, op)
		for _, v := range op.Inputs {
			used[v] = true
		}
	}
	slices.Reverse(kept)
	p.Ops = kept
	p.Weights = slices.DeleteFunc(p.Weights, func(v *Value) bool { return !used[v] })
}
