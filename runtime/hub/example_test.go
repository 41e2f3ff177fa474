package hub_test

import (
	"fmt"

	"mlxcel/runtime/hub"
)

func ExampleParseReference() {
	for _, name := range []string{"qwen3:0.6b", "Qwen3-8B-8bit", "HuggingFaceTB/SmolLM2-360M", "qwen3:0.7b"} {
		ref, err := hub.ParseReference(name)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(ref)
	}
	// Output:
	// mlx-community/Qwen3-0.6B-4bit
	// mlx-community/Qwen3-8B-8bit
	// HuggingFaceTB/SmolLM2-360M
	// "qwen3:0.7b" is no known short name; near it are qwen3:0.6b, qwen3:1.7b, qwen3:14b
}
