package engine_test

import (
	"context"
	"fmt"
	"log"

	"mlxcel/bindings"
	"mlxcel/loader"
	"mlxcel/runtime/engine"
	"mlxcel/runtime/models"
	"mlxcel/runtime/weights"
)

// Continue a sequence of token ids. Package runtime does this, and the text around it.
func ExampleStart() {
	library, err := loader.Open(loader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	checkpoint, err := weights.Open("path/to/model")
	if err != nil {
		log.Fatal(err)
	}
	model, err := models.Open(checkpoint.Config, checkpoint)
	if err != nil {
		log.Fatal(err)
	}
	e, err := engine.Start(library.Library, model, checkpoint, engine.Options{
		Context: bindings.ContextParams{Device: bindings.DeviceCPU},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	done := make(chan engine.Result)
	err = e.Submit(context.Background(), engine.Request{
		Prompt: []int32{1, 2, 3}, MaxTokens: 10,
		Accept: func(token int32, _ []float32) (stop bool) { fmt.Println(token); return false },
		Done:   func(r engine.Result) { done <- r },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println((<-done).Reason)
}
