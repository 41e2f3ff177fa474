package program

import (
	"fmt"
	"math"
	"strings"

	"mlxcel/bindings"
)

// String prints the program, an op a line:
//
//	%7 = linear(%6, model.layers.0.self_attn.q_proj.weight, …; affine 4 bit, group 32) f32[T,576]  # model.layers.0.self_attn.q_proj
func (p *Program) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "program for up to T=%d tokens, R=%d rows, S=%d sequences\n", p.MaxTokens, p.MaxRows, p.MaxSequences)
	for _, v := range p.Inputs {
		fmt.Fprintf(&s, "input %s %s\n", v.Name, v.Type)
	}
	for i, l := range p.Layers {
		fmt.Fprintf(&s, "state %d: %d heads, keys of %d, values of %d", i, l.KVHeads, l.KeyDim, l.ValueDim)
		if l.Window > 0 {
			fmt.Fprintf(&s, ", window of %d", l.Window)
		}
		s.WriteByte('\n')
	}
	number := map[*Value]int{}
	ref := func(v *Value) string {
		switch {
		case v == nil:
			return "-"
		case v.Weight != nil:
			return v.Weight.name()
		case v.op == nil:
			return v.Name
		}
		return fmt.Sprintf("%%%d", number[v])
	}
	for _, op := range p.Ops {
		var results, inputs []string
		var types []string
		for _, v := range op.Outputs {
			number[v] = len(number)
			results = append(results, ref(v))
			types = append(types, v.Type.String())
		}
		for _, v := range op.Inputs {
			inputs = append(inputs, ref(v))
		}
		if len(results) > 0 {
			s.WriteString(strings.Join(results, ", ") + " = ")
		}
		fmt.Fprintf(&s, "%s(%s%s)", op.Code, strings.Join(inputs, ", "), op.attributes())
		if len(types) > 0 {
			s.WriteString(" " + strings.Join(types, ", "))
		}
		if op.Label != "" {
			s.WriteString("  # " + op.Label)
		}
		s.WriteByte('\n')
	}
	for _, o := range p.Outputs {
		fmt.Fprintf(&s, "output %s = %s\n", o.Name, ref(o.Value))
	}
	return s.String()
}

// attributes prints what follows the inputs of an op.
func (op *Op) attributes() string {
	table := opInfo[op.Code].attributes
	if len(table) == 0 {
		return ""
	}
	if table[0].name == "mode" {
		return "; " + Quant{bindings.QuantMode(op.Attributes[0]), int(op.Attributes[1]), int(op.Attributes[2])}.String()
	}
	var parts []string
	for i, a := range table {
		if a.isFloat {
			parts = append(parts, fmt.Sprintf("%s %g", a.name, math.Float64frombits(uint64(op.Attributes[i]))))
		} else {
			parts = append(parts, fmt.Sprintf("%s %d", a.name, op.Attributes[i]))
		}
	}
	return "; " + strings.Join(parts, ", ")
}

// Describe says what an op is for an error message: its layer, name and shapes.
func (op *Op) Describe() string {
	var types []string
	for _, v := range op.Inputs {
		if v != nil {
			types = append(types, v.Type.String())
		}
	}
	return fmt.Sprintf("%s: %s %s", op.Label, op.Code, strings.Join(types, " x "))
}
