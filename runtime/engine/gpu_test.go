package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
	"mlxcel/loader"
	"mlxcel/runtime/models"
	"mlxcel/runtime/program"
	"mlxcel/runtime/sample"
	"mlxcel/runtime/weights"
	"mlxcel/tests/testenv"
)

// random is a model with made-up weights, for tests of a GPU's memory.
func random(t *testing.T, shape weights.Shape, bits int) (*models.Model, *weights.Checkpoint) {
	t.Helper()
	c, err := weights.Random(shape, bits)
	require.NoError(t, err)
	m, err := models.Open(c.Config, c)
	require.NoError(t, err)
	return m, c
}

// startRandom starts an engine on such a model.
func startRandom(t *testing.T, shape weights.Shape, bits int, o Options) (*Engine, error) {
	t.Helper()
	if testenv.Device() != "cuda" {
		t.Skip("a test of a GPU's memory")
	}
	loaded, err := loader.Open(loader.Options{Bundle: testenv.Bundle(t), Device: "cuda"})
	require.NoError(t, err)
	m, c := random(t, shape, bits)
	o.Context.Device = bindings.DeviceCUDA
	e, err := Start(loaded.Library, m, c, o)
	if err == nil {
		t.Cleanup(e.Close)
	}
	return e, err
}

// askRandom hands in a prompt of n tokens that begins with none that others know, and waits for four more.
func askRandom(t *testing.T, e *Engine, first int32, n int) Result {
	prompt := make([]int32, n)
	for i := range prompt {
		prompt[i] = first + int32(i)%1000
	}
	done := make(chan Result, 1)
	require.NoError(t, e.Submit(context.Background(), Request{
		Prompt: prompt, MaxTokens: 4, Accept: func(int32, []float32) bool { return false }, Done: func(r Result) { done <- r },
	}))
	return <-done
}

// wide is a model whose matrices are larger than what is dequantized at once.
var wide = weights.Shape{
	Name: "wide", Hidden: 8192, Layers: 3, Intermediate: 28672, Heads: 64, KVHeads: 8, HeadDim: 128, Vocabulary: 64000, Tied: true,
}

// needOn is what a model needs of a GPU, where steps are as large as they may be or smaller.
func needOn(t *testing.T, m *models.Model, slots int) need {
	t.Helper()
	whole, err := m.Record(bindings.BF16, program.Limits{Tokens: 1, Rows: 1, Sequences: 1}, sample.Features{}.Tail())
	require.NoError(t, err)
	n := needOf(whole, bindings.BF16)
	l := &loop{model: m, activation: bindings.BF16, most: slots, chunk: defaultChunk(bindings.DeviceCUDA, "mlx")}
	n.steps, err = l.steps(true)
	require.NoError(t, err)
	return n
}

// least is the smallest limit under which a context fits with steps of that size.
func (n need) least(tokens int, w work) int64 {
	tokens = (tokens + cacheStep - 1) / cacheStep * cacheStep
	return n.weights + w.workspace + (int64(tokens)*n.perToken*(n.layers+2)+n.layers-1)/n.layers + 1
}

func TestFit(t *testing.T) {
	for _, shape := range append(weights.Shapes, wide) {
		m, _ := random(t, shape, 4)
		n := needOn(t, m, 8)
		require.Greater(t, len(n.steps), 2)
		for i, w := range n.steps {
			require.Equal(t, 2048>>i, w.chunk)
			if i > 0 {
				require.Less(t, w.workspace, n.steps[i-1].workspace)
			}
			tokens, got, err := n.fit(n.least(4000, w), 80e9, 4000, true)
			require.NoError(t, err)
			require.Equal(t, 4000, tokens)
			require.Equal(t, w, got, "the largest step that there is room for")
		}
		last := n.steps[len(n.steps)-1]
		// Where no context was asked for, a long one comes before large steps, and a short one before none.
		tokens, got, err := n.fit(n.least(goodContext, n.steps[1]), 80e9, 40960, false)
		require.NoError(t, err)
		require.Equal(t, n.steps[1], got)
		require.GreaterOrEqual(t, tokens, goodContext)
		tokens, got, err = n.fit(n.least(leastContext, last), 80e9, 40960, false)
		require.NoError(t, err)
		require.Equal(t, last, got)
		require.Equal(t, leastContext, tokens)
		_, _, err = n.fit(n.least(leastContext, last)-n.perToken, 80e9, 40960, false)
		require.ErrorIs(t, err, ErrNoRoom)
		_, _, err = n.fit(n.least(4000, last)-n.perToken, 80e9, 4000, true)
		require.ErrorIs(t, err, ErrNoRoom)
		require.ErrorContains(t, err, "a context of 3840 tokens (--context)")
	}
}

// What is planned is what is taken at most, by prompts in steps of all sizes, by answers, by caches that grow.
func TestPlanBoundsPeakOnGPU(t *testing.T) {
	if testenv.Device() != "cuda" {
		t.Skip("a test of a GPU's memory")
	}
	const tokens, slots = 6000, 8
	for _, test := range []struct {
		shape weights.Shape
		bits  int
	}{{weights.Shapes[0], 4}, {weights.Shapes[0], 16}, {weights.Shapes[2], 4}, {weights.Shapes[3], 4}, {wide, 4}, {wide, 8}} {
		m, _ := random(t, test.shape, test.bits)
		n := needOn(t, m, slots)
		for _, w := range []work{n.steps[0], n.steps[len(n.steps)-1]} {
			t.Run(fmt.Sprintf("%s, %d bits, steps of %d", test.shape.Name, test.bits, w.chunk), func(t *testing.T) {
				limit := n.least(tokens, w)
				e, err := startRandom(t, test.shape, test.bits, Options{
					MaxTokens: tokens, Slots: slots, NoReuse: true, Context: bindings.ContextParams{MemoryLimit: limit},
				})
				require.NoError(t, err)
				require.NoError(t, e.do(func(l *loop) { _ = l.context.ResetPeak() })) // of other tests
				for i, size := range []int{5000, 100, tokens - 10, 1} {
					r := askRandom(t, e, int32(1000*i), size)
					require.NoError(t, r.Err)
					require.Equal(t, 4, r.Generated)
				}
				got, err := e.Memory()
				require.NoError(t, err)
				t.Logf("%.2f of %.2f GB, %.2f of them weights, %.2f cache, %.2f planned to compute with",
					float64(got.Peak)/1e9, float64(limit)/1e9, float64(n.weights)/1e9, float64(tokens*n.perToken)/1e9, float64(w.workspace)/1e9)
				require.LessOrEqual(t, got.Peak, limit)
			})
		}
	}
}

// A device without room for all requests computes them one by one, or refuses some; others do not suffer.
func TestOutOfMemoryOnGPU(t *testing.T) {
	if testenv.Device() != "cuda" {
		t.Skip("a test of a GPU's memory")
	}
	// Room for a cache of 8,192 tokens, of which four sequences want one each.
	m, _ := random(t, weights.Shapes[0], 4)
	n := needOn(t, m, 4)
	e, err := startRandom(t, weights.Shapes[0], 4, Options{
		MaxTokens: 8192, CacheTokens: 4 * 8192, Slots: 4, Context: bindings.ContextParams{MemoryLimit: n.least(9000, n.steps[0])},
	})
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			r := askRandom(t, e, int32(1000*i), 8100)
			if r.Err != nil && !errors.Is(r.Err, bindings.ErrMemory) {
				t.Errorf("request %d: %v", i, r.Err)
			}
		})
	}
	all.Wait()
	r := askRandom(t, e, 7, 100)
	require.NoError(t, r.Err)
	require.Equal(t, 4, r.Generated)
	got, err := e.Memory()
	require.NoError(t, err)
	require.Zero(t, got.Host, "weights that lie in host memory")
}

func TestTooLargeForGPU(t *testing.T) {
	_, err := startRandom(t, weights.Shapes[1], 4, Options{Context: bindings.ContextParams{MemoryLimit: 3 << 30}})
	require.ErrorIs(t, err, ErrNoRoom)
	require.ErrorContains(t, err, "it needs 2.3 GB for weights")
}
