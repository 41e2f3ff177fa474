package runtime_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/hub"
)

func TestParseName(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("qwen3", 0o755))
	for name, want := range map[string]runtime.Name{
		"qwen3":            {Path: "qwen3"}, // what exists goes first
		"qwen3:0.6b":       {Hub: hub.Reference{Model: "mlx-community/Qwen3-0.6B-4bit"}},
		"Some-Model-4bit":  {Hub: hub.Reference{Model: "mlx-community/Some-Model-4bit"}},
		"org/name":         {Hub: hub.Reference{Model: "org/name"}},
		"org/name:Q8_0":    {Hub: hub.Reference{Model: "org/name", File: "Q8_0"}},
		"./org/name":       {Path: "./org/name"},
		"/no/such/model":   {Path: "/no/such/model"},
		"some/deep/folder": {Path: "some/deep/folder"},
		"folder/":          {Path: "folder/"},
		"model.gguf":       {Path: "model.gguf"},
		"~/model":          {Path: "~/model"},
	} {
		got, err := runtime.ParseName(name)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	for name, want := range map[string]string{
		"qwen3:0.7b":                 "near it are qwen3:0.6b",
		"two words":                  "there is no folder or file of this name",
		"https://huggingface.co/a/b": "write ORG/NAME",
	} {
		_, err := runtime.ParseName(name)
		require.ErrorContains(t, err, want)
	}
	t.Setenv("MLXCEL_MODEL", "/a/b")
	got, err := runtime.ParseName("")
	require.NoError(t, err)
	require.Equal(t, runtime.Name{Path: "/a/b"}, got)
}

func TestFindName(t *testing.T) {
	s := hub.Settings{Cache: filepath.Join(t.TempDir(), "hub")}
	path, err := runtime.Name{Path: "x"}.Find(s, "")
	require.NoError(t, err)
	require.Equal(t, "x", path)
	_, err = runtime.Name{Path: "x"}.Find(s, "main")
	require.ErrorContains(t, err, "a revision is for models of the Hub")
	_, err = runtime.Name{Hub: hub.Reference{Model: "a/b"}}.Find(s, "")
	require.ErrorIs(t, err, hub.ErrNotCached)
}
