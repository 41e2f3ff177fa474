package engine

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The time of a decode step where the kernels have next to nothing to do, for `go run ./dist bench cpu`: an upper bound
// of what the engine, the ABI and the library cost besides kernels.
func TestHostCost(t *testing.T) {
	if os.Getenv("MLXCEL_BENCH") == "" {
		t.Skip("a measurement: `go run ./dist bench cpu` runs it")
	}
	e := start(t, "native", tinyPath("llama-f32-q4-g32-tied"), Options{Slots: 1})
	var steps []time.Duration
	for range 100 {
		var before time.Time
		_, result := run(t, e, t.Context(), Request{Prompt: []int32{1, 2}, MaxTokens: 60, Accept: func(int32, []float32) bool {
			now := time.Now()
			if !before.IsZero() {
				steps = append(steps, now.Sub(before))
			}
			before = now
			return false
		}})
		require.NoError(t, result.Err)
	}
	slices.Sort(steps)
	t.Logf("a step of a tiny model: %.1f us", float64(steps[len(steps)/2].Nanoseconds())/1e3)
}
