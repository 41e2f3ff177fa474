// Package testenv finds what tests need and the repository does not hold:
// the bundle, the default model, a Python with reference packages and real
// tokenizers. `go run ./dist test` puts these into a cache folder.
//
// When a thing is missing, the asking test is skipped with the reason. With
// MLXCEL_TEST_STRICT=1, which `go run ./dist test` sets, it fails instead, so
// that a complete run can leave nothing out without saying so.
package testenv

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// ModelFile is the file name of the default model in the cache.
const ModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf"

// remedy ends every reason for a missing thing.
const remedy = "run `go run ./dist test` once"

// CacheDir returns the folder that holds everything downloaded or built:
// $MLXCEL_CACHE if that is set, else "mlxcel" in the user's cache folder. It
// need not exist.
func CacheDir() string {
	if dir := os.Getenv("MLXCEL_CACHE"); dir != "" {
		return absolute(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil { // no HOME: as in a bare container
		dir = os.TempDir()
	}
	return filepath.Join(dir, "mlxcel")
}

// Root returns the folder of the repository: the nearest one with a go.mod at
// or above the working folder, which for a test is its package's folder. It
// panics when there is none, as then no test of this module is running.
func Root() string {
	start, err := os.Getwd()
	if err != nil {
		panic("testenv: no working folder: " + err.Error())
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "go.mod")) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("testenv: no go.mod at or above " + start)
		}
	}
}

// Python returns the interpreter of the test environment, which has the
// packages tokenizers, jinja2 and numpy at pinned versions, and mlx-lm after
// `go run ./dist test --long`.
func Python(t testing.TB) string {
	t.Helper()
	python := filepath.Join(CacheDir(), "venv", "test", ScriptsFolder(), "python")
	if runtime.GOOS == "windows" {
		python += ".exe"
	}
	return need(t, "the Python of the test environment", python, remedy)
}

// ScriptsFolder is the folder of programs in a virtual environment of Python.
func ScriptsFolder() string {
	if runtime.GOOS == "windows" {
		return "Scripts"
	}
	return "bin"
}

// Tokenizers returns real tokenizers by their short name ("llama3_1",
// "gemma3", …), each as a folder that holds tokenizer.json and
// tokenizer_config.json.
func Tokenizers(t testing.TB) map[string]string {
	t.Helper()
	pattern := filepath.Join(CacheDir(), "tokenizers", "*", "tokenizer.json")
	files, _ := filepath.Glob(pattern)
	if len(files) == 0 {
		missing(t, "real tokenizers", pattern, remedy)
	}
	folders := make(map[string]string, len(files))
	for _, file := range files {
		folder := filepath.Dir(file)
		folders[filepath.Base(folder)] = folder
	}
	return folders
}

// Bundle returns the bundle folder, whose variants (as in "cpu") hold the
// backend library: $MLXCEL_BUNDLE if that is set, else bin/lib in the
// repository.
func Bundle(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("MLXCEL_BUNDLE")
	if dir == "" {
		dir = filepath.Join(Root(), "bin", "lib")
	}
	dir = absolute(dir)
	pattern := filepath.Join(dir, "*", "libmlxshim.so")
	if runtime.GOOS == "windows" {
		pattern = filepath.Join(dir, "*", "mlxshim.dll")
	}
	if libraries, _ := filepath.Glob(pattern); len(libraries) == 0 {
		missing(t, "the bundle", pattern, remedy)
	}
	return dir
}

// Device returns where tests that can run on a GPU run: "cpu", or "cuda" with MLXCEL_TEST_DEVICE=cuda.
func Device() string {
	if os.Getenv("MLXCEL_TEST_DEVICE") == "cuda" {
		return "cuda"
	}
	return "cpu"
}

// Model returns the path of the default model, SmolLM2-135M-Instruct as a Q4_1
// GGUF file.
func Model(t testing.TB) string {
	t.Helper()
	return need(t, "the default model", filepath.Join(CacheDir(), "models", ModelFile), remedy)
}

// need returns path, or ends the test when nothing is there.
func need(t testing.TB, what, path, remedy string) string {
	t.Helper()
	if !exists(path) {
		missing(t, what, path, remedy)
	}
	return path
}

// missing ends the test: as failed when the run is to be complete, else as
// skipped.
func missing(t testing.TB, what, path, remedy string) {
	t.Helper()
	if os.Getenv("MLXCEL_TEST_STRICT") == "1" {
		t.Fatalf("%s is missing (%s): %s", what, path, remedy)
	}
	t.Skipf("%s is missing (%s): %s", what, path, remedy)
}

// absolute keeps a relative path from the environment usable by packages that
// run in different folders: it counts from the repository.
func absolute(dir string) string {
	if filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(Root(), dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
