package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestField(t *testing.T) {
	file := filepath.Join(t.TempDir(), "status")
	require.NoError(t, os.WriteFile(file, []byte("Name:\tx\nVmHWM:\t   1024 kB\nVmHWM: 1 kB\nnothing\n"), 0o600))
	require.Equal(t, "1024 kB", field(file, "VmHWM", ":"))
	require.Equal(t, int64(1<<20), kilobytes(field(file, "VmHWM", ":")))
	require.Equal(t, "", field(file, "VmRSS", ":"))
	require.Equal(t, "", field(file+"x", "VmHWM", ":"))
	require.Zero(t, kilobytes("many kB"))
}
