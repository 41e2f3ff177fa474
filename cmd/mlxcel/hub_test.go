package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime/hub"
	testhub "mlxcel/tests/hub"
	"mlxcel/tests/testenv"
)

const hubModel = "mlx-community/tiny-4bit"

// useHub makes a Hub, with the model of tinyModel, that of the environment, and returns it with the cache folder.
func useHub(t *testing.T) (h *testhub.Hub, cache string) {
	t.Helper()
	h = testhub.Start(t)
	folder := tinyModel(t)
	files := map[string]*testhub.File{"README.md": testhub.Text("---\nlicense: mit\n---\n"), "pytorch_model.bin": testhub.LFS(make([]byte, 10))}
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		files[name] = testhub.LFS(data)
	}
	h.Add(hubModel, &testhub.Model{Files: files, Tags: []string{"license:mit"}})
	cache = filepath.Join(t.TempDir(), "hub")
	for name, value := range map[string]string{
		"HF_ENDPOINT": h.URL, "HF_HUB_CACHE": cache, "HF_TOKEN": testhub.Token, "HF_HUB_OFFLINE": "", "HF_HUB_DISABLE_SYMLINKS": "",
	} {
		t.Setenv(name, value)
	}
	return h, cache
}

// requireRun types a command line that succeeds.
func requireRun(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	code, out, errors := (&fake{}).run("", args...)
	require.Equal(t, cli.ExitOK, code, errors)
	return out, errors
}

func TestDownloadListInfoRemove(t *testing.T) {
	h, cache := useHub(t)
	out, errors := requireRun(t, "list")
	require.Empty(t, out)
	require.Contains(t, errors, "mlxcel download qwen3:0.6b gets one")
	out, _ = requireRun(t, "list", "--json")
	require.Equal(t, "[]\n", out)

	out, _ = requireRun(t, "info", "tiny-4bit")
	require.Regexp(t, `(?m)^model +mlx-community/tiny-4bit\nrevision +main [0-9a-f]{40}\nsize +\d+\.\d kB to be downloaded\ntype +llama\ncontext +512 tokens\nlicence +mit\nfiles +README.md$`, out)

	out, errors = requireRun(t, "download", "tiny-4bit")
	path := strings.TrimSuffix(out, "\n")
	require.DirExists(t, path)
	require.True(t, strings.HasPrefix(path, cache))
	require.NoFileExists(t, filepath.Join(path, "pytorch_model.bin"))
	require.Regexp(t, `^mlx-community/tiny-4bit, revision main \([0-9a-f]{12}\): 3 files, \d+\.\d kB, \d+\.\d kB downloaded now\n$`, errors)
	out, errors = requireRun(t, "pull", "-q", "tiny-4bit")
	require.Equal(t, path+"\n", out)
	require.Empty(t, errors)

	out, _ = requireRun(t, "list")
	require.Regexp(t, `^MODEL +SIZE +TYPE +WEIGHTS +REVISION *\nmlx-community/tiny-4bit +\d+\.\d kB +llama +[0-9a-f]{12} *\n$`, out)
	out, _ = requireRun(t, "info", hubModel, "--json", "--offline")
	var info hub.Info
	require.NoError(t, json.Unmarshal([]byte(out), &info))
	require.Equal(t, "mit", info.Licence)
	require.True(t, info.Downloaded)
	require.Equal(t, []string{"README.md", "config.json", "model.safetensors"}, info.Files)

	// A part that is missing shows, and comes again.
	require.NoError(t, os.RemoveAll(filepath.Join(cache, "models--mlx-community--tiny-4bit", "blobs")))
	out, _ = requireRun(t, "list")
	require.Contains(t, out, "in part")
	_, errors = requireRun(t, "download", "tiny-4bit")
	require.NotContains(t, errors, "all of it was here")
	h.Body()
	_, errors = requireRun(t, "download", "tiny-4bit")
	require.Contains(t, errors, "all of it was here")
	require.Zero(t, h.Body())

	code, _, errors := (&fake{}).run("", "rm", "tiny-4bit")
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, errors, "--yes")
	code, _, errors = (&fake{}).run("", "rm", "--yes", "tiny-5bit")
	require.Equal(t, cli.ExitFailure, code)
	require.Contains(t, errors, "near it are "+hubModel)
	_, errors = requireRun(t, "rm", "-y", "tiny-4bit")
	require.Contains(t, errors, "are free again")
	require.NoDirExists(t, path)
}

func TestDownloadJSON(t *testing.T) {
	useHub(t)
	out, errors := requireRun(t, "download", hubModel, "--json", "--parallel", "2")
	require.Empty(t, errors)
	kinds := map[string]int{}
	var last downloaded
	for line := range strings.Lines(out) {
		var event struct{ Event string }
		require.NoError(t, json.Unmarshal([]byte(line), &event))
		kinds[event.Event]++
		require.NoError(t, json.Unmarshal([]byte(line), &last))
	}
	require.Equal(t, 3, kinds["file"])
	require.Equal(t, 3, kinds["done"])
	require.Positive(t, kinds["progress"])
	require.Equal(t, 1, kinds["result"])
	require.Equal(t, hubModel, last.Model)
	require.Equal(t, last.Bytes, last.Fetched)
	require.DirExists(t, last.Path)
}

func TestDownloadToFolder(t *testing.T) {
	_, cache := useHub(t)
	folder := filepath.Join(t.TempDir(), "here")
	out, _ := requireRun(t, "download", hubModel, "--local-dir", folder, "--include", "*.json", "--exclude", "none")
	require.Equal(t, folder+"\n", out)
	require.FileExists(t, filepath.Join(folder, "config.json"))
	require.NoFileExists(t, filepath.Join(folder, "model.safetensors"))
	require.NoDirExists(t, cache)
}

func TestDownloadFailures(t *testing.T) {
	h, _ := useHub(t)
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"download", cli.ExitUsage, "no model is named"},
		{"info", cli.ExitUsage, "no model is named"},
		{"rm", cli.ExitUsage, "no model is named"},
		{"download a b", cli.ExitUsage, "no use for the argument"},
		{"download x --parallel 0", cli.ExitUsage, "--parallel is 0"},
		{"download qwen3:0.7b", cli.ExitFailure, "near it are qwen3:0.6b"},
		{"download mlx-community/Qwen3-0.6B-4bits", cli.ExitFailure, "mlx-community/Qwen3-0.6B-4bit"},
		{"download tiny-4bit --revision v9", cli.ExitFailure, `no revision "v9"`},
		{"download tiny-4bit --offline", cli.ExitFailure, "network must not be used"},
		{"info tiny-4bit --offline", cli.ExitFailure, "network must not be used"},
		{"generate -p x -m tiny-4bit --offline", cli.ExitFailure, "network must not be used"},
		{"inspect -m qwen3:0.7b", cli.ExitFailure, "no folder or file of this name"},
		{"inspect -m tiny-4bit --revision v9", cli.ExitFailure, `no revision "v9"`},
		{"inspect -m ./x --revision v9", cli.ExitFailure, "a revision is for models of the Hub"},
		{"download tiny-4bit --endpoint ftp://x", cli.ExitFailure, "not an address"},
		{"download tiny-4bit --endpoint http://hub.example", cli.ExitFailure, "unprotected"},
		{"rm mlx-community/tiny-4bit:part", cli.ExitUsage, "leave out"},
		{"rm tiny-4bit -y", cli.ExitFailure, "not downloaded"},
	} {
		code, out, errors := (&fake{}).run("", strings.Fields(test.args)...)
		require.Equal(t, test.code, code, "%s: %s", test.args, errors)
		require.Contains(t, errors, test.want, test.args)
		require.Empty(t, out)
		require.NotContains(t, errors, testhub.Token)
	}
	h.Misbehave = testhub.Status(http.StatusForbidden)
	code, _, errors := (&fake{}).run("", "download", "tiny-4bit")
	require.Equal(t, cli.ExitFailure, code)
	require.Contains(t, errors, "access is denied")
}

func TestModelByName(t *testing.T) {
	h, cache := useHub(t)
	f := &fake{}
	code, _, errors := f.run("", "generate", "-m", "tiny-4bit", "-p", "hi")
	require.Equal(t, cli.ExitOK, code, errors)
	require.Regexp(t, `^downloading mlx-community/tiny-4bit, \d+\.\d kB\n`, errors)
	require.Equal(t, filepath.Join(cache, "models--mlx-community--tiny-4bit", "snapshots"), filepath.Dir(f.path))

	// Then without the network, for all commands, and as the default.
	h.Requests()
	path := f.path
	out, errors := requireRun(t, "inspect", "-m", "tiny-4bit")
	require.Empty(t, errors)
	require.Regexp(t, `(?m)^model +mlx-community/tiny-4bit$`, out, "not the commit")
	out, _ = requireRun(t, "doctor", "-m", hubModel)
	require.Contains(t, out, path)
	t.Setenv("MLXCEL_MODEL", "tiny-4bit")
	f = &fake{}
	code, _, errors = f.run(script("hello"), "chat", "--offline")
	require.Equal(t, cli.ExitOK, code, errors)
	require.Equal(t, path, f.path)
	require.Empty(t, h.Requests())
	out, _ = requireRun(t, "doctor", "-m", "mlx-community/other-4bit")
	require.Contains(t, out, "mlxcel download mlx-community/other-4bit")
}

func TestDownloadInterrupted(t *testing.T) {
	h, _ := useHub(t)
	ctx, cancel := context.WithCancel(context.Background())
	h.Misbehave = testhub.Contents(func(_ http.ResponseWriter, r *http.Request, _ *testhub.File) bool {
		cancel()
		<-r.Context().Done()
		return true
	})
	code, out, errors := (&fake{}).runContext(ctx, "", "download", "tiny-4bit")
	require.Equal(t, cli.ExitInterrupted, code)
	require.Empty(t, out)
	require.Contains(t, errors, "the same command goes on")
	h.Misbehave = nil
	requireRun(t, "download", "tiny-4bit")
}

// TestRealAnswerByName is the whole way: from the Hub, on first use, to an answer of the default model.
func TestRealAnswerByName(t *testing.T) {
	bundle := testenv.Bundle(t)
	file, err := os.Open(testenv.Model(t))
	require.NoError(t, err)
	defer file.Close()
	status, err := file.Stat()
	require.NoError(t, err)
	h, _ := useHub(t)
	h.Add("org/SmolLM2-GGUF", &testhub.Model{Files: map[string]*testhub.File{
		"README.md": testhub.Text("# x"), testenv.ModelFile: testhub.OnDisk(t, file, status.Size()),
	}})
	ask := func() (stdout, stderr string) {
		var out, errs bytes.Buffer
		args := []string{"generate", "-p", question, "-m", "org/SmolLM2-GGUF", "--bundle", bundle, "-n", "12"}
		require.Equal(t, cli.ExitOK, Main(context.Background(), args, strings.NewReader(""), &out, &errs), errs.String())
		return out.String(), errs.String()
	}
	out, errors := ask()
	require.Contains(t, out, "Paris")
	require.Contains(t, errors, "downloading org/SmolLM2-GGUF, 98 MB")
	h.Requests()
	again, _ := ask()
	require.Equal(t, out, again)
	require.Empty(t, h.Requests())
	out, _ = requireRun(t, "info", "org/SmolLM2-GGUF")
	require.Regexp(t, `(?m)^type +llama$`, out)
	require.Regexp(t, `(?m)^context +\d+ tokens$`, out)
}
