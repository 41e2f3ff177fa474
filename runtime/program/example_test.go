package program_test

import (
	"fmt"

	"mlxcel/bindings"
	"mlxcel/runtime/program"
)

// one is a checkpoint with two matrices of one input.
type one struct{}

func (one) Lookup(tensor string) (bindings.DType, []int, bool) {
	shape, ok := map[string][]int{"gate.weight": {8, 4}, "up.weight": {8, 4}}[tensor]
	return bindings.BF16, shape, ok
}

func (one) Quantization(string) (program.Quant, bool) { return program.Quant{}, false }

// Record a gated layer; the passes join its two products into one.
func Example() {
	b := program.NewBuilder(one{}, bindings.F32, program.Limits{Tokens: 16})
	x := b.Input("x", bindings.F32, bindings.AxisTokens, 4)
	b.Label("mlp")
	b.Output("y", b.SwiGLU(b.Linear(x, "gate", 8), b.Linear(x, "up", 8)))
	p, err := b.Program()
	if err != nil {
		fmt.Println(err)
		return
	}
	program.Optimize(p)
	fmt.Print(p)
	// Output:
	// program for up to T=16 tokens, R=0 rows, S=0 sequences
	// input x f32[T,4]
	// %0 = linear(x, gate.weight + up.weight, -, -, -; dense) f32[T,16]  # gate
	// %1 = slice(%0; start 0, size 8) f32[T,8]  # gate
	// %2 = slice(%0; start 8, size 8) f32[T,8]  # up
	// %3 = swiglu(%1, %2) f32[T,8]  # mlp
	// output y = %3
}
