package runtime

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// embedder is a copy of a tiny model that says how its vectors are made.
func embedder(t *testing.T, name, pooling string) string {
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(testenv.Root(), "tests", "goldens", "tiny", name))))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "1_Pooling"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "1_Pooling", "config.json"), []byte(pooling), 0o644))
	return dir
}

// The vectors are those that mlx-lm's hidden states give (tests/goldens/embeddings.py), on both libraries.
func TestEmbeddingsEqualMLXLM(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testenv.Root(), "tests", "goldens", "embeddings.json"))
	require.NoError(t, err)
	var golden struct {
		Models map[string][]struct {
			PromptIDs  []int32 `json:"prompt_ids"`
			Mean, Last []float64
		}
	}
	require.NoError(t, json.Unmarshal(text, &golden))
	require.GreaterOrEqual(t, len(golden.Models), 3)
	for _, backend := range []string{"native", "mlx"} {
		t.Run(backend, func(t *testing.T) {
			rt, err := Open(Options{Bundle: testenv.Bundle(t), Backend: backend})
			require.NoError(t, err)
			defer rt.Close()
			for name, cases := range golden.Models {
				for _, pooling := range []string{"mean", "lasttoken"} {
					m, err := rt.LoadModel(embedder(t, name, `{"pooling_mode_`+pooling+`": true, "pooling_mode": "`+pooling+`"}`), ModelOptions{ChunkTokens: 5})
					require.NoError(t, err)
					require.NoError(t, m.Embeds())
					var inputs [][]int32
					for _, c := range cases {
						inputs = append(inputs, c.PromptIDs)
					}
					vectors, err := m.Embed(t.Context(), inputs)
					require.NoError(t, err)
					for i, c := range cases {
						want := c.Mean
						if pooling == "lasttoken" {
							want = c.Last
						}
						require.Len(t, vectors[i], len(want))
						for j := range want {
							require.InDelta(t, want[j], vectors[i][j], 3e-4, "%s, %s, input %d, number %d", name, pooling, i, j)
						}
					}
				}
			}
		})
	}
}

// A model that does not say how vectors are made makes none, nor does one that makes them in a way that is not known.
func TestNoEmbeddings(t *testing.T) {
	rt, err := Open(Options{Bundle: testenv.Bundle(t)})
	require.NoError(t, err)
	defer rt.Close()
	m, err := rt.LoadModel(embedder(t, "llama-f32", `{"pooling_mode": "cls"}`), ModelOptions{})
	require.NoError(t, err)
	_, err = m.Embed(t.Context(), [][]int32{{1}})
	require.ErrorIs(t, err, ErrNoEmbedder)
	require.EqualError(t, err, `the model is no embedding model that mlxcel knows: it makes its vectors with the pooling "cls", and mean and last are known`)

	m, err = rt.LoadModel(embedder(t, "llama-f32", `{}`), ModelOptions{})
	require.NoError(t, err)
	require.Equal(t, ErrNoEmbedder, m.Embeds())

	m, err = rt.LoadModel(embedder(t, "llama-f32", `{"pooling_mode": "mean"}`), ModelOptions{})
	require.NoError(t, err)
	_, err = m.Embed(t.Context(), [][]int32{{1, 2}, {}})
	require.ErrorContains(t, err, "the prompt is empty")
}
