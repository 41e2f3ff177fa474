package host

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLook(t *testing.T) {
	f := Look()
	require.NotEmpty(t, f.System)
	require.Positive(t, f.Threads)
	require.Greater(t, f.Total, int64(64<<20))
	require.Greater(t, f.Total, f.Available)
	require.Positive(t, f.Available)
	if runtime.GOARCH == "amd64" {
		require.NotEmpty(t, f.CPU)
	}
}

func TestPeakMemory(t *testing.T) {
	before := PeakMemory()
	require.Positive(t, before)
	const size = 64 << 20
	block := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		block[i] = 1
	}
	require.Greater(t, PeakMemory(), before+size/2)
	runtime.KeepAlive(block)
}
