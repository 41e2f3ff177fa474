package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder", "history")
	h := openHistory(path)
	require.Empty(t, h.lines)
	for _, line := range []string{"one", "two", "two", "  ", "", "über 世界"} {
		require.NoError(t, h.add(line))
	}
	h = openHistory(path)
	require.Equal(t, []string{"one", "two", "über 世界"}, h.lines, "across sessions")
	require.NoError(t, h.add("three"))
	require.Equal(t, []string{"one", "two", "über 世界", "three"}, openHistory(path).lines)
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
}

func TestHistoryKeepsTheNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	var text strings.Builder
	for i := range 2*maxHistory + 1 {
		fmt.Fprintln(&text, "line", i)
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	h := openHistory(path)
	require.Len(t, h.lines, maxHistory)
	require.Equal(t, fmt.Sprint("line ", 2*maxHistory), h.lines[maxHistory-1])
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, maxHistory, strings.Count(string(kept), "\n"), "the file was cut")
}

func TestHistoryWithoutAFile(t *testing.T) {
	t.Setenv("MLXCEL_HISTORY", "")
	require.Empty(t, historyPath())
	h := openHistory("")
	require.NoError(t, h.add("one"))
	require.Equal(t, []string{"one"}, h.lines)

	t.Setenv("MLXCEL_HISTORY", "/somewhere")
	require.Equal(t, "/somewhere", historyPath())

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("a\xffb\n"), 0o600))
	require.Equal(t, []string{"a\uFFFDb"}, openHistory(file).lines)
	require.Error(t, openHistory(filepath.Join(file, "below")).add("one"), "a file is no folder")
}
