// Package runtime runs language models: the public interface of mlxcel for Go programs.
//
//	rt, err := runtime.Open(runtime.Options{})
//	model, err := rt.LoadModel("path/to/model", runtime.ModelOptions{})
//	for piece, err := range model.Generate(ctx, runtime.Request{Prompt: "Hello"}) {
//		fmt.Print(piece.Text)
//	}
//
// [Open] finds the bundle folder with the libraries (see package loader for where it looks, and for what it changes in
// the process) and opens one. [Runtime.LoadModel] takes an MLX model folder or a GGUF file. A [Model] serves any number
// of goroutines; requests that run at the same time are computed together. Nothing is global: there may be several
// runtimes and models.
package runtime
