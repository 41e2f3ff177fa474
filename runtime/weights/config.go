package weights

import (
	"fmt"
	"slices"
)

// config makes the contents of a config.json from GGUF metadata, without
// "quantization". Integers in it are int64.
func (h *ggufHeader) config(m *metaReader, arch string, fam family, vocab Vocab) (map[string]any, error) {
	key := func(name string) string { return arch + "." + name }

	layers := m.positive(key("block_count"))
	hidden := m.positive(key("embedding_length"))
	heads := m.positive(key("attention.head_count"))
	kvHeads := m.integer(key("attention.head_count_kv"), heads)
	if m.err == nil && (kvHeads == 0 || heads%kvHeads != 0) {
		m.fail(key("attention.head_count_kv"), kvHeads, fmt.Sprintf("a divisor of %d", heads))
	}
	headDim := m.integer(key("attention.key_length"), hidden/heads)
	if _, ok := m.meta[key("attention.key_length")]; m.err == nil && (headDim == 0 || !ok && hidden%heads != 0) {
		m.fail(key("attention.head_count"), heads, fmt.Sprintf("a divisor of the embedding length %d", hidden))
	}
	if n := m.integer(key("attention.value_length"), headDim); m.err == nil && n != headDim {
		m.unread(key("attention.value_length"), n, fmt.Sprintf("%d, the key length", headDim))
	}
	if n := m.integer(key("rope.dimension_count"), headDim); m.err == nil && n != headDim {
		m.unread(key("rope.dimension_count"), n, fmt.Sprintf("%d, the key length", headDim))
	}
	c := map[string]any{
		"model_type":              fam.modelType,
		"hidden_size":             hidden,
		"num_hidden_layers":       layers,
		"intermediate_size":       m.positive(key("feed_forward_length")),
		"num_attention_heads":     heads,
		"num_key_value_heads":     kvHeads,
		"head_dim":                headDim,
		"max_position_embeddings": m.positive(key("context_length")),
		"hidden_act":              "silu",
		"rms_norm_eps":            metaOr(m, key("attention.layer_norm_rms_epsilon"), float32(1e-5)),
		"rope_theta":              metaOr(m, key("rope.freq_base"), float32(10000)),
		"attention_bias":          h.has("blk.0.attn_q.bias"),
		"mlp_bias":                h.has("blk.0.ffn_gate.bias"),
		"tie_word_embeddings":     !h.has("output.weight"),
	}
	if n := m.integer(key("attention.sliding_window"), 0); n > 0 {
		c["sliding_window"] = n
	}
	if fam.experts {
		c["num_experts"] = m.positive(key("expert_count"))
		c["num_experts_per_tok"] = m.positive(key("expert_used_count"))
		c["moe_intermediate_size"] = m.positive(key("expert_feed_forward_length"))
		// What GGUF files of this kind leave unsaid, since it never differs.
		c["norm_topk_prob"] = true
		c["decoder_sparse_step"] = 1
		c["mlp_only_layers"] = []int{}
	}
	if m.err != nil {
		return nil, m.err
	}
	if err := h.checkLayers(layers, hidden, c); err != nil {
		return nil, err
	}
	scaling, err := h.ropeScaling(m, arch, headDim)
	if err != nil {
		return nil, err
	}
	if scaling != nil {
		c["rope_scaling"] = scaling
	}
	addTokens(c, vocab)
	return c, nil
}

// checkLayers checks that the file holds the embedding and the last layer that
// the metadata promise, and sets vocab_size. The other tensors are for the model
// to ask for.
func (h *ggufHeader) checkLayers(layers, hidden int64, c map[string]any) error {
	embedding := h.tensor("token_embd.weight")
	if embedding == nil {
		return damaged(h.path, "it lacks the tensor token_embd.weight")
	}
	if len(embedding.dims) != 2 || embedding.dims[1] != hidden {
		return damaged(h.path, "tensor token_embd.weight has the shape %v, and rows of %d were expected", embedding.dims, hidden)
	}
	c["vocab_size"] = embedding.dims[0]
	if last := fmt.Sprintf("blk.%d.attn_norm.weight", layers-1); !h.has(last) {
		return damaged(h.path, "it claims %d layers and lacks the tensor %s", layers, last)
	}
	return nil
}

// ropeScaling returns the rope_scaling entry of config.json, nil if RoPE is as
// usual. Where the file holds the divisors of the frequencies themselves, as is
// done for llama 3, the type is "frequency_factors", which no config.json has
// otherwise, and the divisors are in the key of the same name.
func (h *ggufHeader) ropeScaling(m *metaReader, arch string, headDim int64) (map[string]any, error) {
	prefix := arch + ".rope.scaling."
	kind := metaOr(m, prefix+"type", "none")
	factor := metaOr(m, prefix+"factor", float32(0))
	if old := metaOr(m, arch+".rope.scale_linear", float32(0)); old != 0 && factor == 0 && kind == "none" {
		kind, factor = "linear", old
	}
	original := m.integer(prefix+"original_context_length", 0)
	if m.err != nil {
		return nil, m.err
	}
	scaled := kind != "none" && factor != 0 && factor != 1

	if t := h.tensor(freqFactorsName); t != nil {
		if scaled {
			return nil, fmt.Errorf("%s has both RoPE factors and %s RoPE scaling, which mlxcel does not read: take the MLX version of the model", h.path, kind)
		}
		factors, err := h.freqFactors(t, headDim)
		return map[string]any{"rope_type": "frequency_factors", "frequency_factors": factors}, err
	}
	if !scaled {
		return nil, nil
	}
	if f := metaOr(m, prefix+"attn_factor", float32(1)); f != 1 {
		return nil, fmt.Errorf("%s scales attention by %v (%sattn_factor), which mlxcel does not read: take the MLX version of the model", h.path, f, prefix)
	}
	c := map[string]any{"rope_type": kind, "factor": factor}
	switch kind {
	case "linear":
	case "yarn":
		if original > 0 {
			c["original_max_position_embeddings"] = original
		}
		for _, name := range []string{"beta_fast", "beta_slow"} {
			if v := metaOr(m, prefix+"yarn_"+name, float32(0)); v != 0 {
				c[name] = v
			}
		}
	default:
		return nil, fmt.Errorf("%s has RoPE scaling of type %.40q; mlxcel reads linear and yarn from GGUF files: take the MLX version of the model", h.path, kind)
	}
	return c, m.err
}

// addTokens sets bos_token_id and eos_token_id, the latter to a list if there
// are several tokens that end an answer.
func addTokens(c map[string]any, v Vocab) {
	if v.BOS >= 0 {
		c["bos_token_id"] = v.BOS
	}
	var ends []int
	for _, id := range []int{v.EOS, v.EOT, v.EOM} {
		if id >= 0 && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	switch len(ends) {
	case 0:
	case 1:
		c["eos_token_id"] = ends[0]
	default:
		c["eos_token_id"] = ends
	}
}

// quantizationConfig returns the "quantization" entry of config.json: the bits
// that most modules have, and the modules that have others. It is nil if no
// module is quantized.
func quantizationConfig(bits map[string]int) map[string]any {
	if len(bits) == 0 {
		return nil
	}
	count := map[int]int{}
	for _, b := range bits {
		count[b]++
	}
	base := 4
	if count[8] > count[4] {
		base = 8
	}
	c := map[string]any{"group_size": groupSize, "bits": base, "mode": "affine"}
	for module, b := range bits {
		if b != base {
			c[module] = map[string]any{"group_size": groupSize, "bits": b}
		}
	}
	return c
}
