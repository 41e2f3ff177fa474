package weights

import (
	"encoding/json"
	"fmt"

	"mlxcel/bindings"
)

// A Shape is the size of a Qwen3 model, dense or a mixture of experts.
type Shape struct {
	Name                                 string
	Hidden, Layers, Intermediate         int
	Heads, KVHeads, HeadDim              int
	Vocabulary                           int
	Experts, ExpertsPerToken, ExpertSize int  // 0: dense
	Tied                                 bool // the head is the embedding
}

// Shapes are the sizes that Random knows by name.
var Shapes = []Shape{
	{Name: "0.6b", Hidden: 1024, Layers: 28, Intermediate: 3072, Heads: 16, KVHeads: 8, HeadDim: 128, Vocabulary: 151936, Tied: true},
	{Name: "4b", Hidden: 2560, Layers: 36, Intermediate: 9728, Heads: 32, KVHeads: 8, HeadDim: 128, Vocabulary: 151936, Tied: true},
	{Name: "8b", Hidden: 4096, Layers: 36, Intermediate: 12288, Heads: 32, KVHeads: 8, HeadDim: 128, Vocabulary: 151936},
	{
		Name: "30b-a3b", Hidden: 2048, Layers: 48, Intermediate: 6144, Heads: 32, KVHeads: 4, HeadDim: 128, Vocabulary: 151936,
		Experts: 128, ExpertsPerToken: 8, ExpertSize: 768,
	},
}

// Random returns a checkpoint of that shape whose weights are made up where they are loaded: its speed is that of a
// real model, its answers are nonsense. bits is 4 or 8 for affine groups of 64, or 16 for bf16.
func Random(shape Shape, bits int) (*Checkpoint, error) {
	if bits != 4 && bits != 8 && bits != 16 {
		return nil, fmt.Errorf("random weights of %d bits are not possible: want 4, 8 or 16", bits)
	}
	const group = 64
	config := map[string]any{
		"model_type": "qwen3", "hidden_size": shape.Hidden, "num_hidden_layers": shape.Layers,
		"intermediate_size": shape.Intermediate, "num_attention_heads": shape.Heads,
		"num_key_value_heads": shape.KVHeads, "head_dim": shape.HeadDim, "vocab_size": shape.Vocabulary,
		"rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 40960,
		"tie_word_embeddings": shape.Tied,
	}
	if shape.Experts > 0 {
		config["model_type"] = "qwen3_moe"
		config["num_experts"], config["num_experts_per_tok"] = shape.Experts, shape.ExpertsPerToken
		config["moe_intermediate_size"], config["norm_topk_prob"] = shape.ExpertSize, true
		config["decoder_sparse_step"], config["mlp_only_layers"] = 1, []int{}
	}
	if bits < 16 {
		config["quantization"] = map[string]any{"group_size": group, "bits": bits}
	}
	c := &Checkpoint{Name: fmt.Sprintf("random %s in %d bits", shape.Name, bits), Format: FormatMLX, Tensors: map[string]Tensor{}}
	var err error
	if c.Config, err = json.Marshal(config); err != nil {
		return nil, err
	}
	add := func(name string, dtype bindings.DType, dims ...int) {
		t := Tensor{Name: name, DType: dtype, Shape: dims}
		t.Parts = []Part{{Size: t.Size()}}
		c.Tensors[name] = t
	}
	matrix := func(module string, dims ...int) {
		width := len(dims) - 1
		if bits == 16 {
			add(module+".weight", bindings.BF16, dims...)
			return
		}
		with := func(last int) []int { return append(append([]int{}, dims[:width]...), last) }
		add(module+".weight", bindings.U32, with(dims[width]*bits/32)...)
		add(module+".scales", bindings.BF16, with(dims[width]/group)...)
		add(module+".biases", bindings.BF16, with(dims[width]/group)...)
	}
	matrix("model.embed_tokens", shape.Vocabulary, shape.Hidden)
	for i := range shape.Layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		for _, norm := range []string{"input_layernorm", "post_attention_layernorm"} {
			add(layer+norm+".weight", bindings.BF16, shape.Hidden)
		}
		for _, norm := range []string{"q_norm", "k_norm"} {
			add(layer+"self_attn."+norm+".weight", bindings.BF16, shape.HeadDim)
		}
		matrix(layer+"self_attn.q_proj", shape.Heads*shape.HeadDim, shape.Hidden)
		matrix(layer+"self_attn.k_proj", shape.KVHeads*shape.HeadDim, shape.Hidden)
		matrix(layer+"self_attn.v_proj", shape.KVHeads*shape.HeadDim, shape.Hidden)
		matrix(layer+"self_attn.o_proj", shape.Hidden, shape.Heads*shape.HeadDim)
		if shape.Experts == 0 {
			matrix(layer+"mlp.gate_proj", shape.Intermediate, shape.Hidden)
			matrix(layer+"mlp.up_proj", shape.Intermediate, shape.Hidden)
			matrix(layer+"mlp.down_proj", shape.Hidden, shape.Intermediate)
			continue
		}
		matrix(layer+"mlp.gate", shape.Experts, shape.Hidden)
		matrix(layer+"mlp.switch_mlp.gate_proj", shape.Experts, shape.ExpertSize, shape.Hidden)
		matrix(layer+"mlp.switch_mlp.up_proj", shape.Experts, shape.ExpertSize, shape.Hidden)
		matrix(layer+"mlp.switch_mlp.down_proj", shape.Experts, shape.Hidden, shape.ExpertSize)
	}
	add("model.norm.weight", bindings.BF16, shape.Hidden)
	if !shape.Tied {
		matrix("lm_head", shape.Vocabulary, shape.Hidden)
	}
	return c, nil
}
