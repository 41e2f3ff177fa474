package main

import (
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/tests/server/realserver"
)

// Under load no request fails, memory does not grow with the number of requests, and nothing is left behind: no page
// held, no goroutine. MLXCEL_TEST_LONG=1 makes it a load of many minutes.
func TestRealServer(t *testing.T) {
	r := realserver.Start(t, runtime.ModelOptions{ContextTokens: 1024, Slots: 8, CacheTokens: 2 * 1024})
	m := r.Model
	clients, length, steady := []int{1, 4, 16}, 1500*time.Millisecond, 5*time.Second
	long := os.Getenv("MLXCEL_TEST_LONG") == "1"
	if long {
		clients, length, steady = []int{1, 2, 4, 8, 16, 32}, time.Minute, 3*time.Minute
	}
	c := config{url: r.URL, time: length, tokens: 16, long: 4}
	_, err := c.ask(t.Context(), http.DefaultClient, 0, 0) // all that stays has started then
	require.NoError(t, err)
	http.DefaultClient.CloseIdleConnections()
	before := goroutines()
	for _, n := range clients {
		f := c.measure(t.Context(), n).figures(n, nil)
		f.write(os.Stderr)
		require.Empty(t, f.Errors)
		require.Positive(t, f.Rate)
		require.GreaterOrEqual(t, f.Requests, n)
	}

	// The cache is full now, or nearly. What grows from here on grows for ever.
	c.time, c.tokens, c.long = steady/2, 4, 8
	half := c.measure(t.Context(), 16)
	at := settled()
	rest := c.measure(t.Context(), 16)
	growth := settled() - at
	require.Zero(t, half.failed+rest.failed)
	if long { // else there are too few requests to see a slope
		require.Less(t, growth*1000/int64(rest.requests), int64(1e6), "bytes per 1,000 requests")
	}
	t.Logf("%d requests, then %d more: %+.2f MB", half.requests, rest.requests, float64(growth)/1e6)

	require.Eventually(t, func() bool { s := m.Stats(); return s.Running+s.Waiting+s.PagesHeld == 0 }, 10*time.Second, time.Millisecond)
	require.LessOrEqual(t, m.Stats().PagesKept, m.Stats().Pages)
	require.Eventually(t, func() bool { return goroutines() <= before }, 10*time.Second, 10*time.Millisecond, "goroutines are left")
	require.NoError(t, r.Stop())
}

func goroutines() int { return goruntime.NumGoroutine() }

// settled is the memory of this process without what can be freed.
func settled() int64 {
	debug.FreeOSMemory()
	return residentBytes(os.Getpid())
}
