package testhub_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/hub"
	testhub "mlxcel/tests/hub"
)

const name = "mlx-community/Tiny-1B-4bit"

var ref = hub.Reference{Model: name}

// noise returns bytes that are the same for the same seed.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(rand.NewChaCha8([32]byte{seed}), b)
	return b
}

// tiny is a model with a large file of several ranges, a smaller one, and things that must not be fetched.
func tiny() *testhub.Model {
	return &testhub.Model{Tags: []string{"license:apache-2.0"}, Files: map[string]*testhub.File{
		"config.json": testhub.Text(`{"model_type": "llama", "max_position_embeddings": 4096, "quantization": {"bits": 4, "group_size": 64}}`),
		"model.safetensors.index.json": testhub.Text(`{"weight_map": {"a": "model-00001-of-00002.safetensors",
			"b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}}`),
		"model-00001-of-00002.safetensors":      testhub.LFS(noise(1, 36<<20+5)),
		"model-00002-of-00002.safetensors":      testhub.LFS(noise(2, 3<<20)),
		"tokenizer.json":                        testhub.LFS(noise(3, 300<<10)),
		"tokenizer_config.json":                 testhub.Text(`{}`),
		"empty.txt":                             testhub.Text(``),
		"chat_template.jinja":                   testhub.Text("{{ messages }}"),
		"additional_chat_templates/tools.jinja": testhub.Text("{{ tools }}"),
		"README.md":                             testhub.Text("---\nlicense: apache-2.0\n---\n# Tiny\n"),
		"pytorch_model.bin":                     testhub.LFS(noise(4, 1000)),
		"consolidated.safetensors":              testhub.LFS(noise(5, 1000)),
		"optimizer.pt":                          testhub.LFS(noise(6, 1000)),
		"training/checkpoint/model.safetensors": testhub.LFS(noise(7, 1000)),
	}}
}

// wanted lists the files of tiny that a download gets.
var wanted = []string{
	"README.md", "additional_chat_templates/tools.jinja", "chat_template.jinja", "config.json", "empty.txt",
	"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json",
	"tokenizer.json", "tokenizer_config.json",
}

func settings(t testing.TB, h *testhub.Hub) hub.Settings {
	return hub.Settings{Endpoint: h.URL, Cache: filepath.Join(t.TempDir(), "hub")}
}

// download downloads with short waits.
func download(t testing.TB, s hub.Settings, change ...func(*hub.Request)) (*hub.Result, error) {
	r := hub.Request{Reference: ref, Backoff: time.Millisecond, Stall: 5 * time.Second}
	for _, c := range change {
		c(&r)
	}
	return hub.Download(t.Context(), s, r)
}

// requireFiles checks that a folder holds these files of a model, with the right contents, and no others.
func requireFiles(t testing.TB, folder string, m *testhub.Model, names []string) {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(folder, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		found = append(found, filepath.ToSlash(relative))
		return err
	}))
	require.Equal(t, names, found)
	for _, n := range names {
		requireFile(t, filepath.Join(folder, n), m.Files[n])
	}
}

func requireFile(t testing.TB, path string, f *testhub.File) {
	t.Helper()
	got, err := os.Open(path)
	require.NoError(t, err)
	defer got.Close()
	sum, want := sha256.New(), sha256.New()
	_, err = io.Copy(sum, got)
	require.NoError(t, err)
	_, err = io.Copy(want, io.NewSectionReader(f.Content, 0, f.Size))
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(want.Sum(nil)), hex.EncodeToString(sum.Sum(nil)), path)
}

// requireTidy checks that nothing unfinished lies in the cache.
func requireTidy(t testing.TB, cache string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(cache, func(path string, e os.DirEntry, err error) error {
		require.NotRegexp(t, `mlxcel-|\.tmp$|\.link-`, path)
		return err
	}))
}

func TestDownload(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, tiny())
	s := settings(t, h)
	_, err := s.Find(ref, "main")
	require.ErrorIs(t, err, hub.ErrNotCached)

	var mu sync.Mutex
	arrived, done := map[string]int64{}, map[string]bool{}
	result, err := download(t, s, func(r *hub.Request) {
		r.Progress = func(e hub.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case hub.EventProgress:
				arrived[e.File] += e.Bytes
			case hub.EventDone:
				done[e.File] = true
			}
		}
	})
	require.NoError(t, err)
	require.Equal(t, m.Commit, result.Commit)
	require.Len(t, wanted, result.Files)
	require.Equal(t, result.Bytes, result.Fetched)
	require.Equal(t, result.Bytes, h.Body(), "nothing came twice")
	require.Equal(t, filepath.Join(s.Cache, "models--mlx-community--Tiny-1B-4bit", "snapshots", m.Commit), result.Path)
	requireFiles(t, result.Path, m, wanted)
	requireTidy(t, s.Cache)
	for _, n := range wanted {
		require.Equal(t, m.Files[n].Size, arrived[n], n)
		require.True(t, done[n], n)
	}

	// The layout of the Python client.
	if linksWork(t) {
		link, err := os.Readlink(filepath.Join(result.Path, "additional_chat_templates", "tools.jinja"))
		require.NoError(t, err)
		require.Equal(t, "../../../blobs/"+m.Files["additional_chat_templates/tools.jinja"].Hash, filepath.ToSlash(link))
	}
	commit, err := os.ReadFile(filepath.Join(s.Cache, "models--mlx-community--Tiny-1B-4bit", "refs", "main"))
	require.NoError(t, err)
	require.Equal(t, m.Commit, string(commit))

	path, err := s.Find(ref, "main")
	require.NoError(t, err)
	require.Equal(t, result.Path, path)
	name, ok := hub.SnapshotName(path)
	require.True(t, ok)
	require.Equal(t, ref.Model, name)

	// Again: only the list is asked for.
	h.Requests()
	result, err = download(t, s)
	require.NoError(t, err)
	require.Zero(t, result.Fetched)
	require.Len(t, h.Requests(), 1)
}

// linksWork reports whether this system makes symbolic links: Windows may forbid it, and Wine only says that it did.
func linksWork(t *testing.T) bool {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	_ = os.Symlink("target", link)
	_, err := os.Readlink(link)
	return err == nil
}

func TestUpdate(t *testing.T) {
	t.Run("with links", func(t *testing.T) { testUpdate(t, false) })
	t.Run("without", func(t *testing.T) { testUpdate(t, true) })
}

func testUpdate(t *testing.T, noLinks bool) {
	h := testhub.Start(t)
	old := h.Add(name, tiny())
	s := settings(t, h)
	s.NoLinks = noLinks
	_, err := download(t, s)
	require.NoError(t, err)
	h.Body()

	m := tiny()
	m.Files["config.json"] = testhub.Text(`{"model_type": "llama", "new": true}`)
	h.Add(name, m)
	result, err := download(t, s)
	require.NoError(t, err)
	require.Equal(t, m.Files["config.json"].Size, h.Body(), "what did not change is linked")
	requireFiles(t, result.Path, m, wanted)
	path, err := s.Find(ref, old.Commit)
	require.NoError(t, err)
	requireFiles(t, path, old, wanted)
}

func TestRevisionAndPatterns(t *testing.T) {
	h := testhub.Start(t)
	m := tiny()
	m.Branches = []string{"refs/pr/1", "v1"}
	h.Add(name, m)
	s := settings(t, h)
	result, err := download(t, s, func(r *hub.Request) {
		r.Revision, r.Include, r.Exclude = "refs/pr/1", []string{"*"}, []string{"*.safetensors", "additional*/"}
	})
	require.NoError(t, err)
	requireFiles(t, result.Path, m, []string{
		"README.md", "chat_template.jinja", "config.json", "empty.txt", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
	})
	_, err = s.Find(ref, "refs/pr/1")
	require.ErrorIs(t, err, hub.ErrNotCached)
	require.ErrorContains(t, err, "model-00001-of-00002.safetensors is missing")

	_, err = download(t, s, func(r *hub.Request) { r.Include = []string{"*.nothing"} })
	require.ErrorContains(t, err, "--include")
	_, err = download(t, s, func(r *hub.Request) { r.Revision = "v2" })
	require.ErrorIs(t, err, hub.ErrNotFound)
	require.ErrorContains(t, err, `"v2"`)
	_, err = download(t, s, func(r *hub.Request) { r.Revision = "../../x" })
	require.ErrorContains(t, err, "not a revision")
}

func TestLocalFolder(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, tiny())
	s := settings(t, h)
	folder := filepath.Join(t.TempDir(), "model")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	require.NoError(t, os.WriteFile(elsewhere, []byte("mine"), 0o644))
	require.NoError(t, os.Mkdir(folder, 0o755))
	links := linksWork(t)
	if links {
		require.NoError(t, os.Symlink(elsewhere, filepath.Join(folder, "config.json")))
	}
	local := func(r *hub.Request) { r.LocalDir = folder }
	result, err := download(t, s, local)
	require.NoError(t, err)
	require.Equal(t, folder, result.Path)
	mine, err := os.ReadFile(elsewhere)
	require.NoError(t, err)
	require.Equal(t, "mine", string(mine), "links are replaced, not followed")
	for _, n := range wanted {
		requireFile(t, filepath.Join(folder, n), m.Files[n])
	}
	require.NoDirExists(t, s.Cache)
	h.Body()

	result, err = download(t, s, local)
	require.NoError(t, err)
	require.Zero(t, result.Fetched+h.Body(), "by its notes")
	require.NoError(t, os.RemoveAll(filepath.Join(folder, ".cache")))
	_, err = download(t, s, local)
	require.NoError(t, err)
	require.Zero(t, h.Body(), "by its hashes")

	// A file that was changed is fetched again; a folder that leads elsewhere is not written to.
	later := time.Now().Add(time.Hour)
	path := filepath.Join(folder, "model-00002-of-00002.safetensors")
	require.NoError(t, os.WriteFile(path, noise(9, 3<<20), 0o644))
	require.NoError(t, os.Chtimes(path, later, later))
	require.NoError(t, os.RemoveAll(filepath.Join(folder, "additional_chat_templates")))
	outside := t.TempDir()
	if links {
		require.NoError(t, os.Symlink(outside, filepath.Join(folder, "additional_chat_templates")))
		_, err = download(t, s, local)
		require.Error(t, err)
		require.NoError(t, os.Remove(filepath.Join(folder, "additional_chat_templates")))
	}
	_, err = download(t, s, local)
	require.NoError(t, err)
	requireFile(t, path, m.Files["model-00002-of-00002.safetensors"])
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestWithoutLinks(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, tiny())
	s := settings(t, h)
	s.NoLinks = true
	result, err := download(t, s)
	require.NoError(t, err)
	requireFiles(t, result.Path, m, wanted)
	for _, n := range wanted {
		info, err := os.Lstat(filepath.Join(result.Path, n))
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular(), n)
	}
	blobs, err := os.ReadDir(filepath.Join(filepath.Dir(filepath.Dir(result.Path)), "blobs"))
	require.NoError(t, err)
	require.Empty(t, blobs, "they are moved")
	h.Body()
	_, err = download(t, s)
	require.NoError(t, err)
	require.Zero(t, h.Body())

	// Blobs of a time with links are copied.
	if !linksWork(t) {
		return
	}
	s = settings(t, h)
	_, err = download(t, s)
	require.NoError(t, err)
	m = tiny()
	m.Files["README.md"] = testhub.Text("new")
	h.Add(name, m)
	h.Body()
	s.NoLinks = true
	result, err = download(t, s)
	require.NoError(t, err)
	require.EqualValues(t, 3, h.Body())
	requireFiles(t, result.Path, m, wanted)
}

func TestGGUF(t *testing.T) {
	h := testhub.Start(t)
	one := &testhub.Model{Files: map[string]*testhub.File{"README.md": testhub.Text("x"), "Tiny.Q4_1.gguf": testhub.LFS(noise(1, 5000))}}
	h.Add(name, one)
	s := settings(t, h)
	result, err := download(t, s)
	require.NoError(t, err)
	require.Equal(t, "Tiny.Q4_1.gguf", filepath.Base(result.Path))
	path, err := s.Find(ref, "main")
	require.NoError(t, err)
	require.Equal(t, result.Path, path)

	h.Add(name, &testhub.Model{Files: map[string]*testhub.File{
		"Tiny.Q4_1.gguf": testhub.LFS(noise(1, 5000)), "Tiny.Q8_0.gguf": testhub.LFS(noise(2, 6000)),
	}})
	_, err = download(t, s)
	require.ErrorContains(t, err, "has several GGUF files")
	require.ErrorContains(t, err, "Tiny.Q8_0.gguf")
	q8, err := hub.ParseReference(name + ":q8_0")
	require.NoError(t, err)
	result, err = download(t, s, func(r *hub.Request) { r.Reference = q8 })
	require.NoError(t, err)
	require.Equal(t, "Tiny.Q8_0.gguf", filepath.Base(result.Path))
	path, err = s.Find(q8, "main")
	require.NoError(t, err)
	require.Equal(t, result.Path, path)
	_, err = s.Find(hub.Reference{Model: name, File: "Q2_K"}, "main")
	require.ErrorIs(t, err, hub.ErrNotCached)
}

func TestOtherForms(t *testing.T) {
	h := testhub.Start(t)
	s := settings(t, h)
	config := testhub.Text(`{}`)
	for want, files := range map[string]map[string]*testhub.File{
		"no weights as safetensors or GGUF": {"config.json": config, "pytorch_model.bin": testhub.LFS(noise(1, 10))},
		"adapter":                           {"config.json": config, "adapters.safetensors": testhub.LFS(noise(1, 10))},
		"names \"other.safetensors\"":       {"config.json": config, "model.safetensors.index.json": testhub.Text(`{"weight_map":{"a":"other.safetensors"}}`)},
		"names \"pytorch_model.bin\"":       {"config.json": config, "pytorch_model.bin": testhub.LFS(noise(1, 10)), "model.safetensors.index.json": testhub.Text(`{"weight_map":{"a":"pytorch_model.bin"}}`)},
		"names no files":                    {"config.json": config, "model.safetensors.index.json": testhub.Text(`{}`)},
		"index.json cannot be read":         {"config.json": config, "model.safetensors.index.json": testhub.Text(`[`)},
	} {
		h.Add(name, &testhub.Model{Files: files})
		_, err := download(t, s)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, name)
	}
}

func TestListInfoRemove(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, tiny())
	s := settings(t, h)
	list, err := s.List()
	require.NoError(t, err)
	require.Empty(t, list)

	remote, err := hub.Look(t.Context(), s, ref, "")
	require.NoError(t, err)
	require.Equal(t, "llama", remote.Type)
	require.Equal(t, "affine 4 bit, group 64", remote.Quantization)
	require.Equal(t, 4096, remote.Context)
	require.Equal(t, "apache-2.0", remote.Licence)
	require.Equal(t, m.Commit, remote.Commit)
	require.False(t, remote.Downloaded)
	require.Len(t, remote.Files, len(m.Files))

	result, err := download(t, s)
	require.NoError(t, err)
	require.Equal(t, result.Bytes, remote.Bytes, "what was foretold")
	list, err = s.List()
	require.NoError(t, err)
	require.Len(t, list, 1)
	local := list[0]
	require.True(t, local.Downloaded)
	require.Equal(t, wanted, local.Files)
	require.Equal(t, result.Path, local.Path)
	require.Greater(t, local.Bytes, int64(39<<20))
	require.Equal(t, []any{"llama", "affine 4 bit, group 64", 4096, "apache-2.0", "main"},
		[]any{local.Type, local.Quantization, local.Context, local.Licence, local.Revision})

	require.NoError(t, os.Remove(filepath.Join(result.Path, "model-00002-of-00002.safetensors")))
	local, err = s.Cached(name, "")
	require.NoError(t, err)
	require.False(t, local.Downloaded)

	_, err = s.Remove("mlx-community/Tiny-1B-8bit")
	require.ErrorIs(t, err, hub.ErrNotCached)
	require.ErrorContains(t, err, "near it are "+name)
	freed, err := s.Remove(name)
	require.NoError(t, err)
	require.Equal(t, local.Bytes, freed)
	requireTidy(t, s.Cache)
	list, err = s.List()
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestTwoAtOnce(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, tiny())
	s := settings(t, h)
	// The same in one process: locks are of open files, so it is no different.
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			result, err := download(t, s)
			if err == nil {
				_, err = os.Stat(filepath.Join(result.Path, "config.json"))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	path, err := s.Find(ref, "main")
	require.NoError(t, err)
	requireFiles(t, path, m, wanted)
	var sum int64
	for _, n := range wanted {
		sum += m.Files[n].Size
	}
	require.Equal(t, sum, h.Body(), "every file was fetched once")
	requireTidy(t, s.Cache)
}

func TestRemoveDuringDownload(t *testing.T) {
	h := testhub.Start(t)
	h.Add(name, tiny())
	s := settings(t, h)
	started, goOn := make(chan struct{}, 100), make(chan struct{})
	h.Misbehave = testhub.Contents(func(_ http.ResponseWriter, _ *http.Request, f *testhub.File) bool {
		if f.Size > 30<<20 {
			started <- struct{}{}
			<-goOn
		}
		return false
	})
	finished := make(chan error, 1)
	go func() {
		_, err := download(t, s)
		finished <- err
	}()
	<-started
	_, err := s.Remove(name)
	require.ErrorContains(t, err, "being downloaded")
	close(goOn)
	require.NoError(t, <-finished)
}

func TestOffline(t *testing.T) {
	h := testhub.Start(t)
	h.Add(name, tiny())
	s := settings(t, h)
	s.Offline = true
	_, err := download(t, s)
	require.ErrorIs(t, err, hub.ErrOffline)
	_, err = hub.Look(t.Context(), s, ref, "")
	require.ErrorIs(t, err, hub.ErrOffline)
	require.Empty(t, h.Requests())
}

func TestInterrupt(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, tiny())
	s := settings(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	var arrived int64
	_, err := hub.Download(ctx, s, hub.Request{Reference: ref, Parallel: 2, Progress: func(e hub.Event) {
		if arrived += e.Bytes; e.Kind == hub.EventProgress && arrived > 20<<20 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	result, err := download(t, s)
	require.NoError(t, err)
	require.Less(t, result.Fetched, result.Bytes-15<<20, "it went on")
	require.Less(t, arrived+result.Fetched, result.Bytes+8<<20, "with little twice")
	requireFiles(t, result.Path, m, wanted)
	requireTidy(t, s.Cache)
}

// A description of parts that lies leads to a right file all the same.
func TestResumeOfDamagedPart(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, tiny())
	s := settings(t, h)
	large := m.Files["model-00001-of-00002.safetensors"]
	part := filepath.Join(s.Cache, "models--mlx-community--Tiny-1B-4bit", "blobs", large.Hash+".mlxcel-part")
	require.NoError(t, os.MkdirAll(filepath.Dir(part), 0o755))
	for _, note := range []string{
		fmt.Sprintf(`{"size":%d,"part_size":16777216,"done":[16777216,16777216,100]}`, large.Size), // of zeros
		fmt.Sprintf(`{"size":%d,"part_size":16777216,"done":[16777216,16777216,99999999]}`, large.Size),
		fmt.Sprintf(`{"size":%d,"part_size":1,"done":[]}`, large.Size),
		`{"size":-1}`, `{`, strings.Repeat(" ", 5<<20),
	} {
		require.NoError(t, os.WriteFile(part, bytes.Repeat([]byte{0}, int(large.Size)), 0o644))
		require.NoError(t, os.WriteFile(part+".json", []byte(note), 0o644))
		result, err := download(t, s)
		require.NoError(t, err)
		requireFiles(t, result.Path, m, wanted)
		requireTidy(t, s.Cache)
		_, err = s.Remove(name)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(part), 0o755))
	}
}
