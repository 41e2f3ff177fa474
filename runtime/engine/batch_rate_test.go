package engine

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// Rows that decode together, for `go run ./dist bench cpu`: not a test, since it measures time.
func TestBatchRate(t *testing.T) {
	if os.Getenv("MLXCEL_BENCH") == "" {
		t.Skip("a measurement: `go run ./dist bench cpu` runs it")
	}
	const rows, n = 8, 128
	e := start(t, "native", testenv.Model(t), Options{Slots: rows})
	var mu sync.Mutex
	var first, last time.Time
	tokens := 0
	var wg sync.WaitGroup
	for i := range rows {
		wg.Add(1)
		require.NoError(t, e.Submit(t.Context(), Request{
			Prompt: []int32{int32(100 + i), 260, 260, 260}, MaxTokens: n,
			Accept: func(int32, []float32) bool {
				mu.Lock()
				defer mu.Unlock()
				if tokens++; tokens == rows { // all rows have begun
					first = time.Now()
				}
				last = time.Now()
				return false
			},
			Done: func(Result) { wg.Done() },
		}))
	}
	wg.Wait()
	require.Equal(t, rows*n, tokens)
	t.Logf("%d rows together: %.1f tok/s", rows, float64(tokens-rows)/last.Sub(first).Seconds())
}
