package hub

import (
	"maps"
	"slices"
)

// aliases are everyday names, in lower case, of models of the families that package runtime runs. A name without a size
// stands for a small model, which answers at once on any machine.
var aliases = map[string]string{
	"llama3.1":    "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit",
	"llama3.1:8b": "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit",

	"llama3.2":    "mlx-community/Llama-3.2-1B-Instruct-4bit",
	"llama3.2:1b": "mlx-community/Llama-3.2-1B-Instruct-4bit",
	"llama3.2:3b": "mlx-community/Llama-3.2-3B-Instruct-4bit",

	"llama3.3":     "mlx-community/Llama-3.3-70B-Instruct-4bit",
	"llama3.3:70b": "mlx-community/Llama-3.3-70B-Instruct-4bit",

	"mistral":    "mlx-community/Mistral-7B-Instruct-v0.3-4bit",
	"mistral:7b": "mlx-community/Mistral-7B-Instruct-v0.3-4bit",

	"qwen2.5":      "mlx-community/Qwen2.5-0.5B-Instruct-4bit",
	"qwen2.5:0.5b": "mlx-community/Qwen2.5-0.5B-Instruct-4bit",
	"qwen2.5:1.5b": "mlx-community/Qwen2.5-1.5B-Instruct-4bit",
	"qwen2.5:3b":   "mlx-community/Qwen2.5-3B-Instruct-4bit",
	"qwen2.5:7b":   "mlx-community/Qwen2.5-7B-Instruct-4bit",

	"qwen2.5-coder":    "mlx-community/Qwen2.5-Coder-7B-Instruct-4bit",
	"qwen2.5-coder:7b": "mlx-community/Qwen2.5-Coder-7B-Instruct-4bit",

	"qwen3":      "mlx-community/Qwen3-0.6B-4bit",
	"qwen3:0.6b": "mlx-community/Qwen3-0.6B-4bit",
	"qwen3:1.7b": "mlx-community/Qwen3-1.7B-4bit",
	"qwen3:4b":   "mlx-community/Qwen3-4B-4bit",
	"qwen3:8b":   "mlx-community/Qwen3-8B-4bit",
	"qwen3:14b":  "mlx-community/Qwen3-14B-4bit",
	"qwen3:30b":  "mlx-community/Qwen3-30B-A3B-4bit", // a mixture of experts, 3b of them active
	"qwen3:32b":  "mlx-community/Qwen3-32B-4bit",

	"smollm2":      "HuggingFaceTB/SmolLM2-135M-Instruct",
	"smollm2:135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
	"smollm2:360m": "HuggingFaceTB/SmolLM2-360M-Instruct",
	"smollm2:1.7b": "HuggingFaceTB/SmolLM2-1.7B-Instruct",
}

// AliasNames lists the everyday names, sorted.
func AliasNames() []string { return slices.Sorted(maps.Keys(aliases)) }
