package models

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
	"mlxcel/runtime/program"
	"mlxcel/runtime/weights"
	"mlxcel/tests/testenv"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// shapes is the tensors of a checkpoint that exists in a test only.
type shapes map[string][]int

func (s shapes) Lookup(name string) (bindings.DType, []int, bool) {
	shape, ok := s[name]
	return bindings.BF16, shape, ok
}

// greedy is the tail that the golden programs have.
func greedy(b *program.Builder, s program.Step, logits *program.Value) {
	tokens := b.Argmax(logits)
	b.StoreTokens(tokens, s.RowSlots)
	b.Output("tokens", tokens)
}

func openTiny(t testing.TB, name string) *Model {
	c, err := weights.Open(filepath.Join(testenv.Root(), "tests", "goldens", "tiny", name))
	require.NoError(t, err)
	m, err := Open(c.Config, c)
	require.NoError(t, err)
	return m
}

// The text of one program per family and per part that families differ in.
func TestGoldenPrograms(t *testing.T) {
	for _, name := range []string{
		"llama-f32", "llama-f16-bias", "llama-bf16-mixed", "llama-bf16-rope-llama3", "mistral-bf16-sliding", "qwen2-f32",
		"qwen3-bf16-nvfp4", "qwen3-moe-bf16-sparse-step", "qwen3-moe-f16-unstacked",
	} {
		t.Run(name, func(t *testing.T) {
			p, err := openTiny(t, name).Record(bindings.F32, program.Limits{Tokens: 8, Rows: 2, Sequences: 2}, greedy)
			require.NoError(t, err)
			file := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(p.String()), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), p.String(), "run `go test ./runtime/models -update` if the change is meant")
		})
	}
}

// A step that only fills the state ends with the last layer's keys and values.
func TestProgramWithoutRows(t *testing.T) {
	p, err := openTiny(t, "llama-f32").Record(bindings.F32, program.Limits{Tokens: 8, Sequences: 1}, greedy)
	require.NoError(t, err)
	require.Empty(t, p.Outputs)
	require.Equal(t, bindings.OpKVWrite, p.Ops[len(p.Ops)-1].Code)
	for _, w := range p.Weights {
		require.NotContains(t, w.Weight.Key(), "lm_head")
	}
}

func llamaShapes(layers, hidden, heads, kv, ffn, vocabulary int) (string, shapes) {
	d := hidden / heads
	s := shapes{"model.embed_tokens.weight": {vocabulary, hidden}, "model.norm.weight": {hidden}}
	for i := range layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		s[p+"input_layernorm.weight"] = []int{hidden}
		s[p+"post_attention_layernorm.weight"] = []int{hidden}
		s[p+"self_attn.q_proj.weight"] = []int{hidden, hidden}
		s[p+"self_attn.k_proj.weight"] = []int{kv * d, hidden}
		s[p+"self_attn.v_proj.weight"] = []int{kv * d, hidden}
		s[p+"self_attn.o_proj.weight"] = []int{hidden, hidden}
		s[p+"mlp.gate_proj.weight"] = []int{ffn, hidden}
		s[p+"mlp.up_proj.weight"] = []int{ffn, hidden}
		s[p+"mlp.down_proj.weight"] = []int{hidden, ffn}
	}
	return fmt.Sprintf(`{"model_type":"llama","hidden_size":%d,"num_hidden_layers":%d,"intermediate_size":%d,"num_attention_heads":%d,
		"num_key_value_heads":%d,"vocab_size":%d,"rms_norm_eps":1e-5}`, hidden, layers, ffn, heads, kv, vocabulary), s
}

// Recording, passes and encoding of a large model must stay unnoticeable; the bound is 5 ms on the machine of the
// benchmarks, and the best of some rounds is taken so that a busy machine does not matter.
func TestRecordingIsFast(t *testing.T) {
	config, s := llamaShapes(36, 4096, 32, 8, 12288, 151936)
	best := time.Hour
	for range 20 {
		start := time.Now()
		m, err := Open([]byte(config), s)
		require.NoError(t, err)
		p, err := m.Record(bindings.BF16, program.Limits{Tokens: 32, Rows: 32, Sequences: 32}, greedy)
		require.NoError(t, err)
		require.NotEmpty(t, p.Encode(func(*program.Weight) int64 { return 0 }))
		best = min(best, time.Since(start))
	}
	t.Logf("36 layers recorded, joined and encoded in %s", best)
	require.Less(t, best, 5*time.Millisecond)
}

func BenchmarkRecord36Layers(b *testing.B) {
	config, s := llamaShapes(36, 4096, 32, 8, 12288, 151936)
	m, err := Open([]byte(config), s)
	require.NoError(b, err)
	for b.Loop() {
		p, err := m.Record(bindings.BF16, program.Limits{Tokens: 32, Rows: 32, Sequences: 32}, greedy)
		require.NoError(b, err)
		p.Encode(func(*program.Weight) int64 { return 0 })
	}
}

func TestBadConfigs(t *testing.T) {
	base, s := llamaShapes(1, 64, 4, 2, 128, 96)
	with := func(old, new string) string {
		require.Contains(t, base, old)
		return strings.Replace(base, old, new, 1)
	}
	and := func(extra string) string { return strings.TrimSuffix(base, "}") + "," + extra + "}" }
	for want, config := range map[string]string{
		`config.json: unexpected end of JSON input`:                                                                    `{`,
		`config.json: "hidden_size" is a text, want a whole number`:                                                    with(`"hidden_size":64`, `"hidden_size":"64"`),
		`config.json: "hidden_size" is 0 or missing`:                                                                   with(`"hidden_size":64,`, ``),
		`config.json: "num_hidden_layers" is 1000000000000, want 1 to 4096`:                                            with(`"num_hidden_layers":1`, `"num_hidden_layers":1000000000000`),
		`config.json: "vocab_size" is -1, want 1 to 67108864`:                                                          with(`"vocab_size":96`, `"vocab_size":-1`),
		`config.json: 3 attention heads cannot share 2 key/value heads`:                                                with(`"num_attention_heads":4`, `"num_attention_heads":3`),
		`config.json: "rms_norm_eps" is 0, want more than 0 and at most 1`:                                             with(`1e-5`, `0`),
		`config.json: model type "gpt9" is not supported; mlxcel runs llama, mistral, qwen2, qwen3, qwen3_moe`:         with(`"llama"`, `"gpt9"`),
		`config.json: layer type "linear" is not supported`:                                                            and(`"layer_types":["linear"]`),
		`config.json: "layer_types" has 2 entries for 1 layers`:                                                        and(`"layer_types":["full_attention","full_attention"]`),
		`config.json: "layer_types" has sliding layers and "sliding_window" is missing`:                                and(`"layer_types":["sliding_attention"]`),
		`config.json: rope type "spiral" is not supported`:                                                             and(`"rope_scaling":{"type":"spiral","factor":2}`),
		`config.json: "rope_scaling" needs a positive "factor"`:                                                        and(`"rope_scaling":{"type":"linear"}`),
		`config.json: quantization method "awq" is not MLX's: take an MLX version of the model`:                        and(`"quantization_config":{"quant_method":"awq"}`),
		`config.json: quantization of "model.norm": mode "int3" is not known`:                                          and(`"quantization":{"model.norm":{"mode":"int3"}}`),
		`config.json: "rope_theta" is missing`:                                                                         with(`"llama"`, `"qwen3"`),
		`config.json: "num_experts_per_tok" or "moe_intermediate_size" does not fit "num_experts"`:                     strings.Replace(and(`"num_experts":4,"rope_theta":1e4`), `"llama"`, `"qwen3_moe"`, 1),
		`model.layers.0.self_attn.q_proj: the checkpoint has no tensor model.layers.0.self_attn.q_proj.bias`:           and(`"attention_bias":true`),
		`model.embed_tokens: embed: model.embed_tokens.weight has shape [96 64], the configuration asks for [97 64]`:   with(`"vocab_size":96`, `"vocab_size":97`),
		`lm_head: linear: the checkpoint has no tensor lm_head.weight`:                                                 and(`"tie_word_embeddings":false`),
		`model.layers.1.input_layernorm: rms_norm: the checkpoint has no tensor model.layers.1.input_layernorm.weight`: with(`"num_hidden_layers":1`, `"num_hidden_layers":2`),
	} {
		m, err := Open([]byte(config), s)
		if err == nil {
			_, err = m.Record(bindings.F32, program.Limits{Tokens: 1, Rows: 1, Sequences: 1}, greedy)
		}
		require.Error(t, err)
		got := strings.TrimSuffix(err.Error(), ": config.json and the weights do not belong together, download the model again")
		require.Equal(t, want, strings.TrimSuffix(got, ": download the model again, or take another version of it"))
	}
	// Families that have no kinds of layers take no notice of the keys.
	_, err := Open([]byte(strings.Replace(and(`"layer_types":["strange"]`), `"llama"`, `"qwen2"`, 1)), s)
	require.NoError(t, err)
	_, err = Open([]byte(and(`"rope_scaling":"linear"`)), s)
	require.ErrorContains(t, err, `config.json: "rope_scaling" is a text, want an object: download`)
	_, err = Open([]byte(with(`"hidden_size":64`, `"hidden_size":64.5`)), s)
	require.ErrorContains(t, err, `config.json: "hidden_size" is 64.5, want a whole number: download`)
	for _, scaling := range []string{
		`{"type":"yarn","factor":2,"original_max_position_embeddings":-4}`,
		`{"type":"yarn","factor":1e308}`,
		`{"type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4}`,
		`{"type":"linear","factor":1e308}`,
	} {
		_, err = Open([]byte(and(`"rope_scaling":`+scaling)), s)
		require.ErrorContains(t, err, `config.json:`, scaling)
	}
}

// Periods by the formulas of the sources, worked out apart from the code for theta 10,000 and 8 dimensions.
func TestRopePeriods(t *testing.T) {
	parse := func(text string) *Scaling {
		s := new(Scaling)
		require.NoError(t, s.UnmarshalJSON([]byte(text)))
		return s
	}
	r, err := parse(`{"rope_type":"linear","factor":4}`).rope(8, 1e4, false)
	require.NoError(t, err)
	require.Equal(t, program.Rope{Dims: 8, Base: 1e4, Scale: 0.25}, r)

	// Waves: 6.28, 62.8, 628, 6283. 64 positions: kept below 16, stretched above 64, blended between.
	r, err = parse(`{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}`).rope(8, 1e4, false)
	require.NoError(t, err)
	smooth := (64/62.83185307179586 - 1) / 3
	require.InDeltaSlice(t, []float64{1, 10 / ((1-smooth)/8 + smooth), 800, 8000},
		[]float64{float64(r.Periods[0]), float64(r.Periods[1]), float64(r.Periods[2]), float64(r.Periods[3])}, 1e-3)

	r, err = parse(`{"type":"yarn","factor":4,"original_max_position_embeddings":64}`).rope(8, 1e4, false)
	require.NoError(t, err)
	require.InDelta(t, 1.1386294, r.MScale, 1e-6)
	require.InDelta(t, 1, r.Periods[0], 1e-6)    // fast: kept
	require.InDelta(t, 4000, r.Periods[3], 1e-2) // slow: stretched
}

func TestTokenIDs(t *testing.T) {
	var ids TokenIDs
	for text, want := range map[string]TokenIDs{"5": {5}, "[1,2]": {1, 2}, "null": nil} {
		require.NoError(t, ids.UnmarshalJSON([]byte(text)))
		require.Equal(t, want, ids)
	}
	require.Error(t, ids.UnmarshalJSON([]byte(`"x"`)))
}

func FuzzConfig(f *testing.F) {
	config, s := llamaShapes(1, 64, 4, 2, 128, 96)
	f.Add([]byte(config))
	f.Add([]byte(strings.TrimSuffix(config, "}") + `,"quantization":{"group_size":64,"bits":4,"lm_head":{"bits":8}},"rope_scaling":{"type":"yarn","factor":2}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Open(text, s)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		_, _ = m.Record(bindings.F32, program.Limits{Tokens: 1, Rows: 1, Sequences: 1}, greedy)
	})
}
