package engine

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
	"mlxcel/loader"
	"mlxcel/runtime/models"
	"mlxcel/runtime/weights"
	"mlxcel/tests/testenv"
)

// startRandom starts an engine on made-up weights.
func startRandom(t *testing.T, shape int, o Options) (*Engine, error) {
	t.Helper()
	if testenv.Device() != "cuda" {
		t.Skip("a test of a GPU's memory")
	}
	loaded, err := loader.Open(loader.Options{Bundle: testenv.Bundle(t), Device: "cuda"})
	require.NoError(t, err)
	c, err := weights.Random(weights.Shapes[shape], 4)
	require.NoError(t, err)
	m, err := models.Open(c.Config, c)
	require.NoError(t, err)
	o.Context.Device = bindings.DeviceCUDA
	e, err := Start(loaded.Library, m, c, o)
	if err == nil {
		t.Cleanup(e.Close)
	}
	return e, err
}

// A device without room for all requests computes them one by one, or refuses some; others do not suffer.
func TestOutOfMemoryOnGPU(t *testing.T) {
	// Room for the weights, 2 GB of temporaries and a cache of 8,192 tokens, of which four sequences want one each.
	e, err := startRandom(t, 0, Options{
		MaxTokens: 8192, CacheTokens: 4 * 8192, Slots: 4, Context: bindings.ContextParams{MemoryLimit: 4200 << 20},
	})
	require.NoError(t, err)
	ask := func(first int32, n int) Result {
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
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			r := ask(int32(1000*i), 8100)
			if r.Err != nil && !errors.Is(r.Err, bindings.ErrMemory) {
				t.Errorf("request %d: %v", i, r.Err)
			}
		})
	}
	all.Wait()
	r := ask(7, 100)
	require.NoError(t, r.Err)
	require.Equal(t, 4, r.Generated)
	m, err := e.Memory()
	require.NoError(t, err)
	require.Zero(t, m.Host, "weights that lie in host memory")
}

func TestTooLargeForGPU(t *testing.T) {
	_, err := startRandom(t, 1, Options{Context: bindings.ContextParams{MemoryLimit: 3 << 30}})
	require.ErrorIs(t, err, ErrNoRoom)
	require.ErrorContains(t, err, "it needs 2.3 GB for weights")
}
