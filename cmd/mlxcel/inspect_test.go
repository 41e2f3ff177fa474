package main

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
)

// tinyModel writes a llama model of one layer, whose weights are zeros, and returns its folder.
func tinyModel(t *testing.T) string {
	t.Helper()
	const hidden, intermediate, vocabulary, kv = 32, 64, 100, 16
	folder := filepath.Join(t.TempDir(), "tiny")
	require.NoError(t, os.Mkdir(folder, 0o755))
	config, err := json.Marshal(map[string]any{
		"model_type": "llama", "hidden_size": hidden, "intermediate_size": intermediate, "vocab_size": vocabulary,
		"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
		"max_position_embeddings": 512, "tie_word_embeddings": true, "eos_token_id": []int{3, 5},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), config, 0o644))

	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header, size := map[string]entry{}, 0
	add := func(name string, shape ...int) {
		bytes := 4
		for _, n := range shape {
			bytes *= n
		}
		header[name] = entry{"F32", shape, [2]int{size, size + bytes}}
		size += bytes
	}
	add("model.embed_tokens.weight", vocabulary, hidden)
	add("model.norm.weight", hidden)
	const layer = "model.layers.0."
	add(layer+"input_layernorm.weight", hidden)
	add(layer+"post_attention_layernorm.weight", hidden)
	add(layer+"self_attn.q_proj.weight", hidden, hidden)
	add(layer+"self_attn.k_proj.weight", kv, hidden)
	add(layer+"self_attn.v_proj.weight", kv, hidden)
	add(layer+"self_attn.o_proj.weight", hidden, hidden)
	add(layer+"mlp.gate_proj.weight", intermediate, hidden)
	add(layer+"mlp.up_proj.weight", intermediate, hidden)
	add(layer+"mlp.down_proj.weight", hidden, intermediate)
	text, err := json.Marshal(header)
	require.NoError(t, err)
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "model.safetensors"), append(file, make([]byte, size)...), 0o644))
	return folder
}

func TestInspect(t *testing.T) {
	folder := tinyModel(t)
	f := &fake{}
	code, out, errors := f.run("", "inspect", "-m", folder)
	require.Equal(t, cli.ExitOK, code, errors)
	require.Empty(t, errors)
	for _, line := range []string{
		`model +tiny\n`, `family +llama\n`, `layers +1 of width 32, 4 heads, 2 for keys and values\n`, `vocabulary +100 tokens\n`,
		`context +512 tokens\n`, `tokenizer +no: takes token ids only\n`, `end tokens +3 5\n`, `memory +\d+\.\d kB for weights`,
	} {
		require.Regexp(t, `(?m)^`+line, out)
	}
}

func TestInspectJSON(t *testing.T) {
	code, out, _ := (&fake{}).run("", "inspect", "-m", tinyModel(t), "--json")
	require.Equal(t, cli.ExitOK, code)
	var i inspection
	require.NoError(t, json.Unmarshal([]byte(out), &i))
	require.Equal(t, "tiny", i.Name)
	require.Equal(t, "mlx", i.Format)
	require.Equal(t, []int32{3, 5}, i.EndTokens)
	require.Equal(t, map[string]int{"f32": 11}, i.Tensors)
	const matrices = 100*32 + 2*32*32 + 2*16*32 + 3*64*32
	require.Equal(t, int64(matrices*4+3*32*4), i.StoredBytes)
	require.Equal(t, i.StoredBytes, i.Memory.Weights)
	require.Equal(t, int64(1024*2*2*8*4), i.Memory.StatePer1k)
	require.Equal(t, i.Memory.StatePer1k/2, i.Memory.StateOfFull)
	require.Empty(t, i.Program)
}

func TestInspectProgram(t *testing.T) {
	folder := tinyModel(t)
	code, one, errors := (&fake{}).run("", "inspect", "-m", folder, "--program")
	require.Equal(t, cli.ExitOK, code, errors)
	code, many, _ := (&fake{}).run("", "inspect", "-m", folder, "--program", "--tokens", "64")
	require.Equal(t, cli.ExitOK, code)
	require.NotEmpty(t, one)
	require.NotEqual(t, one, many)
	require.Contains(t, many, "64")

	code, out, _ := (&fake{}).run("", "inspect", "-m", folder, "--program", "--json")
	require.Equal(t, cli.ExitOK, code)
	var i inspection
	require.NoError(t, json.Unmarshal([]byte(out), &i))
	require.Contains(t, one, i.Program)
	require.NotEmpty(t, i.Program)
}

func TestInspectWhatIsNoModel(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	code, out, errors := (&fake{}).run("", "inspect", "-m", missing)
	require.Equal(t, cli.ExitFailure, code)
	require.Empty(t, out)
	require.Regexp(t, `^mlxcel: [^\n]*missing[^\n]*\n$`, errors)
}

func TestInspectStages(t *testing.T) {
	f := &fake{}
	code, out, errors := f.run("", "inspect", "-m", tinyModel(t), "--stages", "--tokens", "9", "--backend", "native")
	require.Equal(t, cli.ExitOK, code, errors)
	require.Equal(t, "0 everything for 9\n", out)
	require.Equal(t, "native", f.options.Backend)
	require.Equal(t, 1, f.closed)
	code, _, errors = f.run("", "inspect", "--stages", "--json")
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, errors, "--stages goes with neither --program nor --json")
}
