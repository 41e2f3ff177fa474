package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// touch makes an empty file and the folders above it.
func touch(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	return path
}

// outcome records how a helper ended the test that it was called with.
type outcome struct {
	testing.TB
	fatal, skip string
}

type ended struct{}

func (o *outcome) Helper()                           {}
func (o *outcome) Fatalf(format string, args ...any) { o.fatal = format; panic(ended{}) }
func (o *outcome) Skipf(format string, args ...any)  { o.skip = format; panic(ended{}) }

func observe(f func(testing.TB)) (o *outcome) {
	o = &outcome{}
	defer func() {
		if r := recover(); r != nil && r != (ended{}) {
			panic(r)
		}
	}()
	f(o)
	return o
}

func TestFindsWhatIsThere(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("MLXCEL_CACHE", cache)
	t.Setenv("MLXCEL_BUNDLE", filepath.Join(cache, "lib"))
	python := touch(t, cache, "venv", "test", "bin", "python")
	model := touch(t, cache, "models", ModelFile)
	touch(t, cache, "tokenizers", "qwen3", "tokenizer.json")
	touch(t, cache, "tokenizers", "gemma3", "tokenizer.json")
	touch(t, cache, "lib", "cpu", "libmlxshim.so")

	require.Equal(t, cache, CacheDir())
	require.Equal(t, python, Python(t))
	require.Equal(t, model, Model(t))
	require.Equal(t, filepath.Join(cache, "lib"), Bundle(t))
	require.Equal(t, map[string]string{
		"qwen3":  filepath.Join(cache, "tokenizers", "qwen3"),
		"gemma3": filepath.Join(cache, "tokenizers", "gemma3"),
	}, Tokenizers(t))
}

func TestMissingSkipsOrFails(t *testing.T) {
	t.Setenv("MLXCEL_CACHE", t.TempDir())
	t.Setenv("MLXCEL_BUNDLE", t.TempDir())
	helpers := map[string]func(testing.TB){
		"Python":     func(t testing.TB) { Python(t) },
		"Model":      func(t testing.TB) { Model(t) },
		"Bundle":     func(t testing.TB) { Bundle(t) },
		"Tokenizers": func(t testing.TB) { Tokenizers(t) },
	}
	for name, helper := range helpers {
		t.Setenv("MLXCEL_TEST_STRICT", "")
		lenient := observe(helper)
		require.NotEmpty(t, lenient.skip, name)
		require.Empty(t, lenient.fatal, name)

		t.Setenv("MLXCEL_TEST_STRICT", "1")
		strict := observe(helper)
		require.NotEmpty(t, strict.fatal, name)
		require.Empty(t, strict.skip, name)
	}
}

func TestRoot(t *testing.T) {
	require.FileExists(t, filepath.Join(Root(), "tests", "testenv", "testenv.go"))
	t.Setenv("MLXCEL_CACHE", "some/cache")
	require.Equal(t, filepath.Join(Root(), "some", "cache"), CacheDir())
}
