package program

import "mlxcel/bindings"

// Encode writes the program as the words that the C ABI takes. index gives the place of a weight in the weight set.
func (p *Program) Encode(index func(*Weight) int64) []int64 {
	words := []int64{
		bindings.ProgramMagic, bindings.ProgramVersion,
		int64(len(p.Inputs)), int64(len(p.Weights)), int64(len(p.Ops)), int64(len(p.Outputs)),
		int64(p.MaxTokens), int64(p.MaxRows), int64(p.MaxSequences),
	}
	number := make(map[*Value]int64, len(p.Inputs)+len(p.Weights)+len(p.Ops))
	define := func(v *Value) { number[v] = int64(len(number)) }
	appendType := func(t Type) {
		words = append(words, int64(t.DType), int64(t.Axis), int64(len(t.Shape)))
		for _, d := range t.Shape {
			words = append(words, int64(d))
		}
	}
	for _, v := range p.Inputs {
		define(v)
		appendType(v.Type)
	}
	for _, v := range p.Weights {
		define(v)
		words = append(words, index(v.Weight))
	}
	for _, op := range p.Ops {
		words = append(words, int64(op.Code), int64(len(op.Inputs)))
		for _, v := range op.Inputs {
			if v == nil {
				words = append(words, -1)
				continue
			}
			words = append(words, number[v])
		}
		words = append(words, int64(len(op.Attributes)))
		words = append(words, op.Attributes...)
		words = append(words, int64(len(op.Outputs)))
		for _, v := range op.Outputs {
			define(v)
			appendType(v.Type)
		}
	}
	for _, o := range p.Outputs {
		words = append(words, number[o.Value])
	}
	return words
}
