package models_test

import (
	"fmt"

	"mlxcel/bindings"
	"mlxcel/runtime/models"
)

type noTensors struct{}

func (noTensors) Lookup(string) (bindings.DType, []int, bool) { return 0, nil, false }

// The families, and what the configuration of an unknown one answers.
func ExampleOpen() {
	fmt.Println(models.Families())
	_, err := models.Open([]byte(`{"model_type":"parrot","hidden_size":64,"num_hidden_layers":1,"intermediate_size":128,
		"num_attention_heads":4,"vocab_size":96,"rms_norm_eps":1e-5}`), noTensors{})
	fmt.Println(err)
	// Output:
	// [llama mistral qwen2 qwen3 qwen3_moe]
	// config.json: model type "parrot" is not supported; mlxcel runs llama, mistral, qwen2, qwen3, qwen3_moe
}
