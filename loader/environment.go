package loader

import (
	"fmt"
	"os"
)

// environment is what MLX reads from the environment, once, when it is loaded.
// A variable that the user has set stays as it is.
var environment = []struct{ name, value string }{
	// Sums of f32 products in f32, not in the 10 bits of TF32.
	{"MLX_ENABLE_TF32", "0"},
	// A program of its own for each number of tokens and rows, of some graphs each.
	{"MLX_CUDA_GRAPH_CACHE_SIZE", "4000"},
	// cuDNN's attention takes longer than MLX's own where one token is decoded.
	{"MLX_CUDA_USE_CUDNN_SDPA", "0"},
	// MLX counts the misses of its caches over the life of the process, and throws
	// when there are many: a server that runs for long gets there.
	{"MLX_ENABLE_CACHE_THRASHING_CHECK", "0"},
}

// jitVariable names the folder in which MLX keeps what it compiles for a GPU.
const jitVariable = "MLX_PTX_CACHE_DIR"

// setEnvironment sets the variables, and the folder of compiled kernels unless that is "".
func setEnvironment(jitCache string) error {
	for _, e := range environment {
		if err := setDefault(e.name, e.value); err != nil {
			return err
		}
	}
	if jitCache == "" {
		return nil
	}
	return setDefault(jitVariable, jitCache)
}

func setDefault(name, value string) error {
	if set, ok := os.LookupEnv(name); ok {
		value = set
	}
	if err := setenv(name, value); err != nil {
		return fmt.Errorf("cannot set the environment variable %s: %w", name, err)
	}
	return nil
}
