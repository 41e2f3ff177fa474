// Package goldens holds some of the goldens beside it, for `mlxcel selftest`: see README.md.
package goldens

import "embed"

// Models are tiny models of every family and of the common quantizations, each a folder below "tiny" with its golden.json.
//
//go:embed tiny/llama-f32 tiny/llama-f16-q8-g32 tiny/llama-bf16-q4-g128 tiny/mistral-f16 tiny/qwen2-f32 tiny/qwen3-bf16-q6-g32-tied tiny/qwen3-f32-tied tiny/qwen3-moe-f32
var Models embed.FS

// Default is the golden of the default model, SmolLM2-135M-Instruct.Q4_1.gguf.
//
//go:embed smollm2.json
var Default []byte

// Golden is what mlx-lm computed for a model.
type Golden struct {
	DType string `json:"dtype"` // of the model's float tensors: "f32", "bf16", "f16"
	Cases []Case `json:"cases"` // computed in DType
	F32   *struct {
		Cases []Case `json:"cases"`
	} `json:"f32"` // the same weights computed in f32; nil where DType is f32
}

// Case is a prompt and how it goes on.
type Case struct {
	Name      string    `json:"name"`
	PromptIDs []int32   `json:"prompt_ids"`
	IDs       []int32   `json:"ids"`     // the likeliest token of each step
	Margins   []float64 `json:"margins"` // by how much its logit was above the next one
}

// Exact are the cases computed in f32.
func (g Golden) Exact() []Case {
	if g.F32 != nil {
		return g.F32.Cases
	}
	return g.Cases
}
