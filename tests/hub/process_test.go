package testhub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/hub"
	testhub "mlxcel/tests/hub"
	"mlxcel/tests/testenv"
)

// childVariable makes the test program, started anew, download what the variables of the environment say, and print a
// report in JSON.
const childVariable = "MLXCEL_TEST_DOWNLOAD"

type report struct {
	*hub.Result
	Seconds    float64
	PeakMemory int64 // bytes, 0 if unknown
}

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	s, err := hub.FromEnvironment()
	began := time.Now()
	var r report
	if err == nil {
		r.Result, err = hub.Download(context.Background(), s, hub.Request{Reference: ref, Backoff: time.Millisecond})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r.Seconds, r.PeakMemory = time.Since(began).Seconds(), peakMemory()
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

// peakMemory asks the kernel.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kB, _ := strconv.ParseInt(fields[0], 10, 64)
	return kB << 10
}

// child is a process that downloads.
func child(t *testing.T, h *testhub.Hub, cache string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), childVariable+"=1", "HF_ENDPOINT="+h.URL, "HF_HUB_CACHE="+cache, "HF_TOKEN_PATH="+filepath.Join(cache, "none"))
	c.Stderr = os.Stderr
	return c
}

func long() bool { return os.Getenv("MLXCEL_TEST_LONG") == "1" }

func TestKill(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, tiny())
	kills := 8
	if long() {
		kills = 50
	}
	cache := filepath.Join(t.TempDir(), "hub")
	s := hub.Settings{Endpoint: h.URL, Cache: cache}
	// How long it takes when nothing is in the way, so that the moments lie within.
	out, err := child(t, h, cache).Output()
	require.NoError(t, err)
	var whole report
	require.NoError(t, json.Unmarshal(out, &whole))
	_, err = s.Remove(name)
	require.NoError(t, err)

	ends := 0
	for i := range kills {
		c := child(t, h, cache)
		c.Stdout = io.Discard
		require.NoError(t, c.Start())
		time.Sleep(time.Duration(rand.Float64() * whole.Seconds * float64(time.Second)))
		require.NoError(t, c.Process.Kill())
		if c.Wait() == nil {
			ends++
		}
		requireHonest(t, cache, m)
		if i%3 != 2 { // else the next one goes on
			continue
		}
		result, err := download(t, s)
		require.NoError(t, err)
		requireFiles(t, result.Path, m, wanted)
		_, err = s.Remove(name)
		require.NoError(t, err)
	}
	result, err := download(t, s)
	require.NoError(t, err)
	requireFiles(t, result.Path, m, wanted)
	t.Logf("%d kills, %d of them too late; a whole download takes %.2f s", kills, ends, whole.Seconds)
}

// requireHonest checks that what has a final name is whole.
func requireHonest(t *testing.T, cache string, m *testhub.Model) {
	t.Helper()
	repo := filepath.Join(cache, "models--mlx-community--Tiny-1B-4bit")
	blobs, _ := os.ReadDir(filepath.Join(repo, "blobs"))
	for _, b := range blobs {
		for _, f := range m.Files {
			if f.Hash == b.Name() {
				requireFile(t, filepath.Join(repo, "blobs", b.Name()), f)
			}
		}
	}
	folder := filepath.Join(repo, "snapshots", m.Commit)
	for _, n := range wanted {
		if _, err := os.Lstat(filepath.Join(folder, n)); err == nil {
			requireFile(t, filepath.Join(folder, n), m.Files[n])
		}
	}
	if commit, err := os.ReadFile(filepath.Join(repo, "refs", "main")); err == nil {
		require.Equal(t, m.Commit, string(commit))
		requireFiles(t, folder, m, wanted)
	}
}

func TestTwoProcesses(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, tiny())
	cache := filepath.Join(t.TempDir(), "hub")
	one, two := child(t, h, cache), child(t, h, cache)
	require.NoError(t, one.Start())
	require.NoError(t, two.Start())
	require.NoError(t, one.Wait())
	require.NoError(t, two.Wait())
	path, err := hub.Settings{Cache: cache}.Find(ref, "main")
	require.NoError(t, err)
	requireFiles(t, path, m, wanted)
	var sum int64
	for _, n := range wanted {
		sum += m.Files[n].Size
	}
	require.Equal(t, sum, h.Body(), "every file was fetched once")
}

// TestSpeed downloads a large file, of holes and so of no cost to the server, in a process of its own.
func TestSpeed(t *testing.T) {
	size := int64(300 << 20)
	if long() {
		size = 5 << 30
	}
	large := filepath.Join(t.TempDir(), "large")
	f, err := os.Create(large)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(size))
	h := testhub.Start(t)
	h.Add(name, &testhub.Model{Files: map[string]*testhub.File{
		"config.json": testhub.Text(`{}`), "model.safetensors": testhub.OnDisk(t, f, size),
	}})
	c := child(t, h, filepath.Join(t.TempDir(), "hub"))
	out, err := c.Output()
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(out, &r))
	require.Equal(t, size+2, r.Fetched)
	perCPU := float64(size) / 1e6 / (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
	t.Logf("%.0f MB/s, hash and disk included, %.0f MB for a second of CPU; peak memory %.0f MB", float64(size)/1e6/r.Seconds, perCPU, float64(r.PeakMemory)/1e6)
	require.Less(t, r.PeakMemory, int64(200e6))
}

func TestPythonClient(t *testing.T) {
	python := testenv.Python(t)
	if output, err := exec.Command(python, "-c", "import huggingface_hub").CombinedOutput(); err != nil {
		if os.Getenv("MLXCEL_TEST_STRICT") == "1" {
			t.Fatalf("the test environment has no huggingface_hub: %s", output)
		}
		t.Skipf("the test environment %s has no huggingface_hub: run `go run ./dist test` once", python)
	}
	h := testhub.Start(t)
	m := tiny()
	m.Gated = true // so that the token is needed
	h.Add(name, m)
	run := func(t *testing.T, cache, code string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), python, "-c", "from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download\n"+code)
		c.Env = append(os.Environ(), "HF_ENDPOINT="+h.URL, "HF_HUB_CACHE="+cache, "HF_HOME="+filepath.Dir(cache), "HF_TOKEN="+testhub.Token, "HF_HUB_DISABLE_PROGRESS_BARS=1")
		var errors strings.Builder
		c.Stderr = &errors
		out, err := c.Output()
		require.NoError(t, err, errors.String())
		return strings.TrimSpace(string(out))
	}
	const snapshot = `print(snapshot_download("` + name + `", ignore_patterns=["*.bin", "*.pt", "consolidated*", "training/*"]))`

	for _, links := range []string{"", "1"} {
		t.Run("links disabled "+links, func(t *testing.T) {
			t.Setenv("HF_HUB_DISABLE_SYMLINKS", links)
			// What Python got is used without a byte more.
			s := settings(t, h)
			s.Token, s.NoLinks = testhub.Token, links == "1"
			path := run(t, s.Cache, snapshot)
			h.Body()
			found, err := s.Find(ref, "main")
			require.NoError(t, err)
			require.Equal(t, path, found)
			result, err := download(t, s)
			require.NoError(t, err)
			require.Equal(t, path, result.Path)
			require.Zero(t, h.Body()+result.Fetched)
			requireFiles(t, path, m, wanted)

			// And the reverse, also of a single file and offline.
			s.Cache = filepath.Join(t.TempDir(), "hub")
			result, err = download(t, s)
			require.NoError(t, err)
			h.Body()
			script := snapshot + `
print(hf_hub_download("` + name + `", "config.json"))
print(snapshot_download("` + name + `", local_files_only=True, ignore_patterns=["*.bin", "*.pt", "consolidated*", "training/*"]))
cache = scan_cache_dir()
print(len(cache.repos), not cache.warnings)`
			require.Equal(t, strings.Join([]string{result.Path, filepath.Join(result.Path, "config.json"), result.Path, "1 True"}, "\n"), run(t, s.Cache, script))
			require.Zero(t, h.Body())

			// A local folder, both ways.
			folder := filepath.Join(t.TempDir(), "model")
			_, err = download(t, s, func(r *hub.Request) { r.LocalDir = folder })
			require.NoError(t, err)
			h.Body()
			run(t, s.Cache, strings.Replace(snapshot, "ignore_patterns", `local_dir="`+folder+`", ignore_patterns`, 1))
			require.Zero(t, h.Body(), "the notes are understood")
		})
	}
	require.Zero(t, h.Leaked())
}

func TestProxy(t *testing.T) {
	h := testhub.Start(t)
	h.Add(name, single(1000))
	var hosts sync.Map
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts.Store(r.URL.Host, true)
		proxyTo(h.URL, w, r)
	}))
	defer proxy.Close()
	c := child(t, h, filepath.Join(t.TempDir(), "hub"))
	c.Env = append(c.Env, "HF_ENDPOINT=http://hub.invalid", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	out, err := c.Output()
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(out, &r))
	require.EqualValues(t, 1002, r.Fetched)
	_, asked := hosts.Load("hub.invalid")
	require.True(t, asked)
}
