package runtime_test

import (
	"context"
	"fmt"
	"log"

	"mlxcel/runtime"
)

// Answer a chat with the default model, as the tokens come.
func Example() {
	rt, err := runtime.Open(runtime.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	model, err := rt.LoadModel("", runtime.ModelOptions{})
	if err != nil {
		log.Fatal(err)
	}
	question := runtime.Request{
		Messages:  []runtime.Message{{Role: "user", Content: "What is the capital of France?"}},
		MaxTokens: 30,
	}
	for piece, err := range model.Generate(context.Background(), question) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
}

// What a model is can be told without loading it.
func ExampleInspect() {
	model, err := runtime.Inspect("../tests/goldens/tiny/qwen2-bf16-q4-g64-yarn")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(model.Family, model.Parameters, model.Formats)
	// Output: qwen2 86592 map[affine 4 bit, group 64:16 bf16:11]
}
