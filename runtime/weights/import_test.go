package weights

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
	"mlxcel/tests/testenv"
)

// half is an F16 number by its definition.
func half(h uint16) float32 {
	f := math.Ldexp(float64(h&0x3ff), -24)
	if exp := int(h >> 10 & 31); exp > 0 {
		f = math.Ldexp(1+float64(h&0x3ff)/1024, exp-15)
	}
	if h>>15 == 1 {
		f = -f
	}
	return float32(f)
}

func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		h := uint16(h)
		if h&0x7c00 == 0x7c00 { // infinite or no number
			want := h&0x3ff == 0
			require.Equal(t, want, math.IsInf(float64(halfToFloat(h)), 0))
			require.Equal(t, !want, math.IsNaN(float64(halfToFloat(h))))
			require.Equal(t, h, shiftHalf(h, 7))
			continue
		}
		require.Equal(t, half(h), halfToFloat(h))
		for _, k := range []int{3, 7} {
			if want := half(h) * float32(int(1)<<k); want > -65536 && want < 65536 {
				require.Equal(t, want, half(shiftHalf(h, k)), "%#x", h)
			}
		}
	}
}

// ggufValues computes the elements of blocks as the GGUF format defines them.
func ggufValues(kind uint32, data []byte) []float32 {
	var out []float32
	for ; len(data) > 0; data = data[ggufTypes[kind].bytes:] {
		d := half(le.Uint16(data))
		for i := range 32 {
			nibble := func(q []byte) float32 {
				if i < 16 {
					return float32(q[i] & 15)
				}
				return float32(q[i-16] >> 4)
			}
			switch kind {
			case typeQ4_0:
				out = append(out, d*(nibble(data[2:])-8))
			case typeQ4_1:
				out = append(out, float32(d*nibble(data[4:]))+half(le.Uint16(data[2:])))
			case typeQ8_0:
				out = append(out, d*float32(int8(data[2+i])))
			}
		}
	}
	return out
}

// affineValues computes the elements of a module as MLX defines them.
func affineValues(t *testing.T, c *Checkpoint, module string, bits int) []float32 {
	w, scales, biases := read(t, c, module+".weight"), read(t, c, module+".scales"), read(t, c, module+".biases")
	number := func(b []byte, i int) float32 {
		if c.Tensors[module+".scales"].DType == bindings.F32 {
			return math.Float32frombits(le.Uint32(b[4*i:]))
		}
		return half(le.Uint16(b[2*i:]))
	}
	var out []float32
	perWord := 32 / bits
	for i := range len(w) / 4 * perWord {
		word := le.Uint32(w[i/perWord*4:])
		q := float32(word >> (i % perWord * bits) & (1<<bits - 1))
		out = append(out, float32(number(scales, i/32)*q)+number(biases, i/32))
	}
	return out
}

var quantTypes = map[uint32]int{typeQ4_0: 4, typeQ4_1: 4, typeQ8_0: 8}

func TestQuantizedExactly(t *testing.T) {
	for kind, bits := range quantTypes {
		f := tinyGGUF("llama", kind)
		c := mustOpen(t, f)
		for gguf, module := range map[string]string{"blk.0.ffn_down": "model.layers.0.mlp.down_proj", "blk.1.attn_v": "model.layers.1.self_attn.v_proj"} {
			src := f.get(gguf + ".weight")
			require.Equal(t, ggufValues(kind, src.data), affineValues(t, c, module, bits), ggufTypes[kind].name)
			rows, cols := int(src.dims[1]), int(src.dims[0])
			require.Equal(t, []int{rows, cols * bits / 32}, c.Tensors[module+".weight"].Shape)
			require.Equal(t, []int{rows, cols / 32}, c.Tensors[module+".scales"].Shape)
			require.Equal(t, []int{rows, cols / 32}, c.Tensors[module+".biases"].Shape)
			require.Equal(t, bindings.U32, c.Tensors[module+".weight"].DType)
			require.Equal(t, bindings.F16, c.Tensors[module+".scales"].DType)
			require.Equal(t, bindings.F16, c.Tensors[module+".biases"].DType)
		}
		require.Equal(t, ggufValues(typeQ8_0, f.get("token_embd.weight").data), affineValues(t, c, "model.embed_tokens", 8))
	}
}

// A bias that F16 cannot hold makes scales and biases F32, and stays exact.
func TestQuantizedWide(t *testing.T) {
	for kind, limit := range map[uint32]float32{typeQ4_0: 8192, typeQ8_0: 512} {
		for _, sign := range []uint16{0, 0x8000} {
			f := tinyGGUF("qwen2", kind)
			src := f.get("blk.0.ffn_up.weight")
			last := src.data[len(src.data)-int(ggufTypes[kind].bytes):]
			d := uint16(0x5000) | sign // 32; then up to the limit
			for half(d&^0x8000) < limit {
				d += 0x400
			}

			le.PutUint16(last, d-1)
			c := mustOpen(t, f)
			require.Equal(t, bindings.F16, c.Tensors["model.layers.0.mlp.up_proj.biases"].DType)
			require.Equal(t, ggufValues(kind, src.data), affineValues(t, c, "model.layers.0.mlp.up_proj", quantTypes[kind]))

			le.PutUint16(last, d)
			c = mustOpen(t, f)
			require.Equal(t, bindings.F32, c.Tensors["model.layers.0.mlp.up_proj.scales"].DType)
			require.Equal(t, bindings.F32, c.Tensors["model.layers.0.mlp.up_proj.biases"].DType)
			require.Equal(t, bindings.F16, c.Tensors["model.layers.1.mlp.up_proj.scales"].DType)
			require.Equal(t, ggufValues(kind, src.data), affineValues(t, c, "model.layers.0.mlp.up_proj", quantTypes[kind]))
		}
	}
}

// interleave does what the converter to GGUF does with the q and k rows of
// llama models: reshape(heads, 2, head/2, ...).swapaxes(1, 2).
func interleave[T any](rows []T, heads int) []T {
	var out []T
	n := len(rows) / heads
	for h := range heads {
		for i := range n / 2 {
			out = append(out, rows[h*n+i], rows[h*n+n/2+i])
		}
	}
	return out
}

// chunks cuts b into n pieces of equal length.
func chunks[T any](b []T, n int) [][]T {
	var out [][]T
	for i := range n {
		out = append(out, b[i*len(b)/n:(i+1)*len(b)/n])
	}
	return out
}

func TestInterleavedRows(t *testing.T) {
	for arch, interleaved := range map[string]bool{"llama": true, "qwen2": false} {
		for _, kind := range []uint32{typeF32, typeF16, typeBF16, typeQ4_0, typeQ4_1, typeQ8_0} {
			f := tinyGGUF(arch, kind)
			rng := rand.New(rand.NewPCG(2, 3))
			f.add(rng, "blk.0.attn_q.bias", typeF32, tinyHeads*tinyHead)
			f.add(rng, "blk.0.attn_k.bias", typeF32, tinyKV*tinyHead)
			f.add(rng, "blk.0.attn_v.bias", typeF32, tinyKV*tinyHead)
			c := mustOpen(t, f)
			for _, proj := range []struct {
				name  string
				heads int
				moved bool
			}{{"q", tinyHeads, true}, {"k", tinyKV, true}, {"v", tinyKV, false}} {
				module := "model.layers.0.self_attn." + proj.name + "_proj"
				rows := proj.heads * tinyHead

				bias := chunks(read(t, c, module+".bias"), rows)
				if interleaved && proj.moved {
					bias = interleave(bias, proj.heads)
				}
				require.Equal(t, chunks(f.get("blk.0.attn_"+proj.name+".bias").data, rows), bias)

				src := f.get("blk.0.attn_" + proj.name + ".weight").data
				if bits, ok := quantTypes[kind]; ok {
					got := chunks(affineValues(t, c, module, bits), rows)
					if interleaved && proj.moved {
						got = interleave(got, proj.heads)
					}
					require.Equal(t, chunks(ggufValues(kind, src), rows), got)
				} else {
					got := chunks(read(t, c, module+".weight"), rows)
					if interleaved && proj.moved {
						got = interleave(got, proj.heads)
					}
					require.Equal(t, chunks(src, rows), got)
				}
			}
		}
	}
}

func TestNamesAndConfig(t *testing.T) {
	c := mustOpen(t, tinyGGUF("qwen2", typeQ4_1))
	require.Equal(t, FormatGGUF, c.Format)
	require.Equal(t, "tiny", c.Name)
	require.Equal(t, "{{ messages }}", c.ChatTemplate)
	require.JSONEq(t, `{
		"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
		"hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 1000000, "attention_bias": false, "mlp_bias": false,
		"tie_word_embeddings": true, "vocab_size": 8, "bos_token_id": 6, "eos_token_id": 7,
		"quantization": {"group_size": 32, "bits": 4, "mode": "affine", "model.embed_tokens": {"group_size": 32, "bits": 8}}
	}`, string(c.Config))

	want := map[string]bool{"model.norm.weight": true}
	quantized := func(module string) {
		want[module+".weight"], want[module+".scales"], want[module+".biases"] = true, true, true
	}
	quantized("model.embed_tokens")
	for l := range tinyLayers {
		p := fmt.Sprintf("model.layers.%d.", l)
		want[p+"input_layernorm.weight"], want[p+"post_attention_layernorm.weight"] = true, true
		for _, m := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"} {
			quantized(p + m)
		}
	}
	got := map[string]bool{}
	for name, tensor := range c.Tensors {
		require.Equal(t, name, tensor.Name)
		got[name] = true
	}
	require.Equal(t, want, got)
}

func TestConfigVariants(t *testing.T) {
	tests := map[string]struct {
		change func(f *ggufFile)
		want   string // JSON of the fields that matter
	}{
		"defaults": {func(f *ggufFile) {
			f.set("llama.attention.head_count_kv", nil)
			f.set("llama.attention.layer_norm_rms_epsilon", nil)
			f.set("llama.rope.freq_base", nil)
			f.set("tokenizer.ggml.bos_token_id", nil)
			for _, l := range "01" {
				k := f.get("blk." + string(l) + ".attn_k.weight")
				k.dims[1], k.data = tinyHeads*tinyHead, f.get("blk.0.attn_q.weight").data
			}
		}, `{"num_key_value_heads": 4, "rms_norm_eps": 1e-05, "rope_theta": 10000, "bos_token_id": null, "rope_scaling": null}`},
		"counts per layer, all equal": {func(f *ggufFile) {
			f.set("llama.feed_forward_length", []uint32{96, 96})
			f.set("llama.attention.head_count_kv", []int32{2, 2})
		}, `{"intermediate_size": 96, "num_key_value_heads": 2}`},
		"head size of its own": {func(f *ggufFile) {
			f.set("llama.attention.key_length", uint32(32))
			f.set("llama.attention.value_length", uint32(32))
			f.set("llama.rope.dimension_count", uint32(32))
			f.set("llama.attention.head_count", uint32(2))
			f.set("llama.attention.head_count_kv", uint32(1))
		}, `{"head_dim": 32, "num_attention_heads": 2}`},
		"biases and head": {func(f *ggufFile) {
			rng := rand.New(rand.NewPCG(1, 1))
			f.add(rng, "blk.0.attn_q.bias", typeF32, tinyHeads*tinyHead)
			f.add(rng, "blk.0.ffn_gate.bias", typeF32, tinyFF)
			f.add(rng, "output.weight", typeQ4_0, tinyHidden, tinyVocab)
		}, `{"attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false}`},
		"several end tokens": {func(f *ggufFile) {
			f.set("tokenizer.ggml.eot_token_id", uint32(5))
			f.set("tokenizer.ggml.eom_token_id", uint32(7))
		}, `{"eos_token_id": [7, 5]}`},
		"linear": {func(f *ggufFile) {
			f.set("llama.rope.scaling.type", "linear")
			f.set("llama.rope.scaling.factor", float32(4))
		}, `{"rope_scaling": {"rope_type": "linear", "factor": 4}}`},
		"linear, as it was": {func(f *ggufFile) {
			f.set("llama.rope.scale_linear", float32(2.5))
		}, `{"rope_scaling": {"rope_type": "linear", "factor": 2.5}}`},
		"yarn": {func(f *ggufFile) {
			f.set("llama.rope.scaling.type", "yarn")
			f.set("llama.rope.scaling.factor", float32(4))
			f.set("llama.rope.scaling.original_context_length", uint32(128))
			f.set("llama.rope.scaling.yarn_beta_fast", float32(16))
		}, `{"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 128, "beta_fast": 16}}`},
		"no scaling": {func(f *ggufFile) {
			f.set("llama.rope.scaling.type", "none")
		}, `{"rope_scaling": null}`},
		"frequency factors": {func(f *ggufFile) {
			var b []byte
			for _, v := range []float32{1, 1, 1.1, 2, 4, 7.75, 8, 8} {
				b = le.AppendUint32(b, math.Float32bits(v))
			}
			f.tensors = append(f.tensors, &ggufData{name: "rope_freqs.weight", kind: typeF32, dims: []uint64{tinyHead / 2}, data: b})
		}, `{"rope_scaling": {"rope_type": "frequency_factors", "frequency_factors": [1, 1, 1.1, 2, 4, 7.75, 8, 8]}}`},
		"mostly 8 bits": {func(f *ggufFile) {
			*f = *tinyGGUF("llama", typeQ8_0)
			q := f.get("blk.1.ffn_up.weight")
			q.kind, q.data = typeQ4_1, tinyGGUF("llama", typeQ4_1).get(q.name).data
		}, `{"quantization": {"group_size": 32, "bits": 8, "mode": "affine", "model.layers.1.mlp.up_proj": {"group_size": 32, "bits": 4}}}`},
		"nothing quantized": {func(f *ggufFile) {
			*f = *tinyGGUF("llama", typeBF16)
			q := f.get("token_embd.weight")
			q.kind, q.data = typeF16, make([]byte, tinyHidden*tinyVocab*2)
		}, `{"quantization": null}`},
		"alignment": {func(f *ggufFile) {
			f.align = 256
			f.set("general.alignment", uint32(256))
		}, `{"hidden_size": 64}`},
		"version 2": {func(f *ggufFile) { f.version = 2 }, `{"hidden_size": 64}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := tinyGGUF("llama", typeQ4_0)
			test.change(f)
			c := mustOpen(t, f)
			got := config(t, c)
			var want map[string]any
			dec := json.NewDecoder(strings.NewReader(test.want))
			dec.UseNumber()
			require.NoError(t, dec.Decode(&want))
			for field, value := range want {
				wantJSON, _ := json.Marshal(value)
				gotJSON, _ := json.Marshal(got[field])
				require.JSONEq(t, string(wantJSON), string(gotJSON), field)
			}
			require.Equal(t, f.get("output_norm.weight").data, read(t, c, "model.norm.weight"))
			for name := range c.Tensors {
				read(t, c, name)
			}
			require.NotContains(t, c.Tensors, "rope_freqs.weight")
		})
	}
}

func TestExperts(t *testing.T) {
	const experts, ff = 4, 32
	f := tinyGGUF("qwen3moe", typeQ4_0)
	f.set("qwen3moe.expert_count", uint32(experts))
	f.set("qwen3moe.expert_used_count", uint32(2))
	f.set("qwen3moe.expert_feed_forward_length", uint32(ff))
	rng := rand.New(rand.NewPCG(4, 5))
	for _, blk := range []string{"blk.0.", "blk.1."} {
		f.remove(blk + "ffn_gate")
		f.remove(blk + "ffn_up")
		f.remove(blk + "ffn_down")
		f.add(rng, blk+"attn_q_norm.weight", typeF32, tinyHead)
		f.add(rng, blk+"attn_k_norm.weight", typeF32, tinyHead)
		f.add(rng, blk+"ffn_gate_inp.weight", typeF32, tinyHidden, experts)
		f.add(rng, blk+"ffn_gate_exps.weight", typeQ4_0, tinyHidden, ff, experts)
		f.add(rng, blk+"ffn_up_exps.weight", typeQ4_0, tinyHidden, ff, experts)
		f.add(rng, blk+"ffn_down_exps.weight", typeQ8_0, ff, tinyHidden, experts)
	}
	c := mustOpen(t, f)
	got := config(t, c)
	for field, want := range map[string]string{"model_type": "qwen3_moe", "num_experts": "4", "num_experts_per_tok": "2", "moe_intermediate_size": "32", "norm_topk_prob": "true", "decoder_sparse_step": "1", "mlp_only_layers": "[]"} {
		require.Equal(t, want, fmt.Sprint(got[field]), field)
	}
	require.Contains(t, got["quantization"], "model.layers.1.mlp.switch_mlp.down_proj")

	const mlp = "model.layers.1.mlp."
	require.Equal(t, []int{experts, ff, tinyHidden / 8}, c.Tensors[mlp+"switch_mlp.gate_proj.weight"].Shape)
	require.Equal(t, []int{experts, ff, tinyHidden / 32}, c.Tensors[mlp+"switch_mlp.up_proj.scales"].Shape)
	require.Equal(t, []int{experts, tinyHidden, ff / 4}, c.Tensors[mlp+"switch_mlp.down_proj.weight"].Shape)
	require.Equal(t, ggufValues(typeQ4_0, f.get("blk.1.ffn_gate_exps.weight").data), affineValues(t, c, mlp+"switch_mlp.gate_proj", 4))
	require.Equal(t, ggufValues(typeQ8_0, f.get("blk.1.ffn_down_exps.weight").data), affineValues(t, c, mlp+"switch_mlp.down_proj", 8))
	require.Equal(t, f.get("blk.1.ffn_gate_inp.weight").data, read(t, c, mlp+"gate.weight"))
	require.Equal(t, []int{experts, tinyHidden}, c.Tensors[mlp+"gate.weight"].Shape)
	require.Equal(t, f.get("blk.0.attn_k_norm.weight").data, read(t, c, "model.layers.0.self_attn.k_norm.weight"))
}

func TestVocab(t *testing.T) {
	f := tinyGGUF("llama", typeQ4_0)
	v := mustOpen(t, f).GGUF.Vocab
	require.Equal(t, Vocab{
		Model: "gpt2", Pre: "smollm",
		Tokens:     []string{"a", "b", "c", "d", "ab", "cd", "<s>", "</s>"},
		TokenTypes: []int32{1, 1, 1, 1, 1, 1, 3, 3},
		Merges:     []string{"a b", "c d"},
		BOS:        6, EOS: 7, UNK: -1, PAD: -1, EOT: -1, EOM: -1,
		ChatTemplate: "{{ messages }}",
	}, v)

	f.set("tokenizer.ggml.model", "llama")
	f.set("tokenizer.ggml.scores", []float32{0, -1, -2, -3, -4, -5, 0, 0})
	f.set("tokenizer.ggml.unknown_token_id", uint32(0))
	v = mustOpen(t, f).GGUF.Vocab
	require.True(t, v.AddBOS)
	require.True(t, v.AddSpacePrefix)
	require.False(t, v.AddEOS)
	require.Equal(t, float32(-2), v.Scores[2])
	require.Equal(t, 0, v.UNK)

	f.set("tokenizer.ggml.add_bos_token", false)
	f.set("tokenizer.ggml.add_eos_token", true)
	f.set("tokenizer.ggml.add_space_prefix", false)
	v = mustOpen(t, f).GGUF.Vocab
	require.False(t, v.AddBOS)
	require.False(t, v.AddSpacePrefix)
	require.True(t, v.AddEOS)

	f = tinyGGUF("llama", typeQ4_0)
	f.set("tokenizer.ggml.pre", "llama-bpe")
	require.True(t, mustOpen(t, f).GGUF.Vocab.AddBOS)
}

func TestRealModel(t *testing.T) {
	path := testenv.Model(t)
	c, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, strings.TrimSuffix(filepath.Base(path), ".gguf"), c.Name)
	require.Equal(t, 3, c.GGUF.Version)
	require.JSONEq(t, `{
		"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1536,
		"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "max_position_embeddings": 8192,
		"hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 100000, "attention_bias": false, "mlp_bias": false,
		"tie_word_embeddings": true, "vocab_size": 49152, "bos_token_id": 1, "eos_token_id": 2,
		"quantization": {"group_size": 32, "bits": 4, "mode": "affine", "model.embed_tokens": {"group_size": 32, "bits": 8}}
	}`, string(c.Config))

	v := c.GGUF.Vocab
	require.Equal(t, "gpt2", v.Model)
	require.Equal(t, "smollm", v.Pre)
	require.Len(t, v.Tokens, 49152)
	require.Len(t, v.TokenTypes, 49152)
	require.Len(t, v.Merges, 48900)
	require.Equal(t, []int{1, 2, 0, 2}, []int{v.BOS, v.EOS, v.UNK, v.PAD})
	require.False(t, v.AddBOS)
	require.Contains(t, c.ChatTemplate, "<|im_start|>")
	require.Equal(t, "HuggingFaceTB", c.GGUF.Meta["general.organization"])

	// 272 tensors in the file, of which 61 are norms.
	require.Len(t, c.Tensors, 61+3*211)
	for name, tensor := range c.Tensors {
		var size int64
		for _, p := range tensor.Parts {
			size += p.Size
		}
		require.Equal(t, tensor.Size(), size, name)
		b := read(t, c, name)
		var largest uint16
		for i := 0; tensor.DType == bindings.F16 && i < len(b); i += 2 {
			largest = max(largest, le.Uint16(b[i:])&0x7fff)
		}
		require.Less(t, half(largest), float32(16), "%s: scales and biases are small", name)
	}
}

func BenchmarkPack(b *testing.B) {
	for _, kind := range []uint32{typeQ4_0, typeQ4_1, typeQ8_0} {
		src := randomBlocks(rand.New(rand.NewPCG(1, 1)), kind, []uint64{4096, 1024})
		dst := make([]byte, 4096*1024*quantBits(kind)/8)
		for name, convert := range map[string]func(dst, src []byte){"weight": packer(kind), "scales": scaler(kind, false), "biases": biaser(kind, false)} {
			b.Run(ggufTypes[kind].name+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(src)))
				for b.Loop() {
					convert(dst, src)
				}
			})
		}
	}
}

// BenchmarkOpen opens the real model.
func BenchmarkOpen(b *testing.B) {
	path := testenv.Model(b)
	for b.Loop() {
		if _, err := Open(path); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRead reads all tensors of the real model, bytes of the file counted.
func BenchmarkRead(b *testing.B) {
	c, err := Open(testenv.Model(b))
	require.NoError(b, err)
	var total int64
	for _, t := range c.Tensors {
		total += t.Size()
	}
	b.SetBytes(total)
	for b.Loop() {
		for _, t := range c.Tensors {
			if _, err := t.Read(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
