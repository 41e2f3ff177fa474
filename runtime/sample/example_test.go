package sample_test

import (
	"fmt"

	"mlxcel/runtime/sample"
)

// Settings decide which ops a program needs at its end, and are checked before anything runs.
func ExampleSettings() {
	s := sample.Settings{Temperature: 0.8, TopK: 40, PresencePenalty: 0.5}
	fmt.Printf("%+v\n", s.Features())
	s.TopP = 1.5
	fmt.Println(s.Check(49152))
	// Output:
	// {Random:true History:64 Biases:0 Logits:false}
	// top-p is 1.5, want 0 to 1
}
