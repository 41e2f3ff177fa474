package terminal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer f.Close()
	for _, stream := range []any{f, &bytes.Buffer{}, nil} {
		require.False(t, Is(stream))
		require.False(t, HasSize(stream))
		require.Equal(t, 100, Width(stream))
	}
	Prepare()() // leaves alone what is no terminal
}
