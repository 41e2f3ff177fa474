package loader

import (
	"fmt"
	"os"
)

// environment is what MLX reads from the environment, once, when it is loaded.
// A variable that the user has set stays as it is.
var environment = []struct{ name, value string }{
	// cuDNN's attention takes longer than MLX's own where one token is decoded.
	{"MLX_CUDA_USE_CUDNN_SDPA", "0"},
	// MLX counts the misses of its caches over the life of the process, and throws
	// when there are many: a server that runs for long gets there.
	{"MLX_ENABLE_CACHE_THRASHING_CHECK", "0"},
}

func setEnvironment() error {
	for _, e := range environment {
		value := e.value
		if set, ok := os.LookupEnv(e.name); ok {
			value = set
		}
		if err := setenv(e.name, value); err != nil {
			return fmt.Errorf("cannot set the environment variable %s: %w", e.name, err)
		}
	}
	return nil
}
