package weights_test

import (
	"fmt"
	"os"
	"path/filepath"

	"mlxcel/runtime/weights"
)

// Open describes a model; its bytes are read when they are wanted.
func Example() {
	dir, err := os.MkdirTemp("", "model")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	header := `{"model.norm.weight":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}`
	file := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header+"\x00\x3c\x00\x40"...)
	os.WriteFile(filepath.Join(dir, "model.safetensors"), file, 0o644)
	os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"llama"}`), 0o644)

	model, err := weights.Open(dir)
	if err != nil {
		panic(err)
	}
	fmt.Println(model.Format, string(model.Config))
	for _, t := range model.Tensors {
		b, err := t.Read()
		fmt.Println(t.Name, t.DType, t.Shape, b, err)
	}
	// Output:
	// mlx {"model_type":"llama"}
	// model.norm.weight f16 [2] [0 60 0 64] <nil>
}
