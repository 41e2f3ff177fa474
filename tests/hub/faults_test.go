package testhub_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/hub"
	testhub "mlxcel/tests/hub"
)

// single is a model with one large file.
func single(size int) *testhub.Model {
	return &testhub.Model{Files: map[string]*testhub.File{
		"config.json": testhub.Text(`{}`), "model.safetensors": testhub.LFS(noise(1, size)),
	}}
}

// requireWhole downloads and checks every byte.
func requireWhole(t testing.TB, s hub.Settings, m *testhub.Model) {
	t.Helper()
	result, err := download(t, s)
	require.NoError(t, err)
	requireFiles(t, result.Path, m, []string{"config.json", "model.safetensors"})
	requireTidy(t, s.Cache)
}

// requireNothing checks that no file, of whatever content, got its final name.
func requireNothing(t testing.TB, s hub.Settings, m *testhub.Model, file string) {
	t.Helper()
	repo := filepath.Join(s.Cache, "models--mlx-community--Tiny-1B-4bit")
	require.NoFileExists(t, filepath.Join(repo, "blobs", m.Files[file].Hash))
	require.NoFileExists(t, filepath.Join(repo, "snapshots", m.Commit, file))
	require.NoFileExists(t, filepath.Join(repo, "refs", "main"))
	_, err := s.Find(ref, "main")
	require.ErrorIs(t, err, hub.ErrNotCached)
}

func TestCutConnections(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, single(40<<20))
	var cuts atomic.Int64
	h.Misbehave = testhub.Contents(testhub.Times(30, func(w http.ResponseWriter, r *http.Request, f *testhub.File) bool {
		cuts.Add(1)
		return f.LFS && testhub.Cut(1+rand.Int64N(f.Size/4))(w, r, f)
	}))
	requireWhole(t, settings(t, h), m)
	require.Greater(t, cuts.Load(), int64(5))
}

func TestAlwaysCut(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, single(1<<20))
	h.Misbehave = testhub.Contents(func(w http.ResponseWriter, r *http.Request, f *testhub.File) bool {
		return f.LFS && testhub.Cut(0)(w, r, f)
	})
	s := settings(t, h)
	_, err := download(t, s)
	require.ErrorContains(t, err, "given up after 8 attempts")
	requireNothing(t, s, m, "model.safetensors")
}

func TestWrongContents(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, single(20<<20))
	wrong := testhub.LFS(append(noise(1, 20<<20-1), 0))
	longer, shorter := testhub.LFS(noise(1, 20<<20+1)), testhub.LFS(noise(1, 20<<20-1))
	config := testhub.Text(`{ }`)
	chunked := func(f *testhub.File) testhub.Fault {
		return func(w http.ResponseWriter, r *http.Request, _ *testhub.File) bool {
			_ = http.NewResponseController(w).Flush() // so that no length is sent
			_, _ = io.Copy(w, io.NewSectionReader(f.Content, 0, f.Size))
			return true
		}
	}
	for what, test := range map[string]struct {
		file  string
		fault testhub.Fault
		want  string
	}{
		"wrong bytes":     {"model.safetensors", h.Instead(wrong), "has the hash"},
		"more bytes":      {"model.safetensors", h.Instead(longer), "wrong range"},
		"fewer bytes":     {"model.safetensors", h.Instead(shorter), "wrong range"},
		"wrong length":    {"config.json", h.Instead(testhub.Text(`{} `)), "sends 3 bytes"},
		"a git file":      {"config.json", h.Instead(testhub.Text(`[]`)), "has the hash"},
		"more than said":  {"config.json", chunked(config), ""}, // seen by its length or, where the end is cut off, by its hash
		"ends before":     {"config.json", chunked(testhub.Text(`{`)), "given up"},
		"an empty answer": {"config.json", testhub.Status(http.StatusNoContent), "answers 204"},
		"another range":   {"model.safetensors", testhub.Status(http.StatusPartialContent, "Content-Range", "bytes 0-9/10"), "range"},
		"no range, shorter": {"model.safetensors", testhub.Fault(func(w http.ResponseWriter, r *http.Request, _ *testhub.File) bool {
			return h.WithoutRanges()(w, r, shorter)
		}), "sends 20971519 bytes"},
	} {
		t.Run(what, func(t *testing.T) {
			h.Misbehave = testhub.Contents(func(w http.ResponseWriter, r *http.Request, f *testhub.File) bool {
				return f == m.Files[test.file] && test.fault(w, r, f)
			})
			s := settings(t, h)
			_, err := download(t, s)
			if test.want == "wrong range" || test.want == "" {
				require.ErrorIs(t, err, hub.ErrDamaged)
			} else {
				require.ErrorContains(t, err, test.want)
			}
			requireNothing(t, s, m, test.file)
			h.Misbehave = nil
			requireWhole(t, s, m)
		})
	}
}

func TestServerWithoutRanges(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, single(40<<20))
	s := settings(t, h)
	h.Misbehave = testhub.Contents(h.WithoutRanges())
	requireWhole(t, s, m)

	// One that stops to send them in the middle.
	s = settings(t, h)
	var asked atomic.Int64
	h.Misbehave = testhub.Contents(func(w http.ResponseWriter, r *http.Request, f *testhub.File) bool {
		return r.Header.Get("Range") != "" && asked.Add(1) > 2 && h.WithoutRanges()(w, r, f)
	})
	requireWhole(t, s, m)

	s = settings(t, h)
	h.Misbehave = testhub.Contents(func(w http.ResponseWriter, r *http.Request, f *testhub.File) bool {
		return r.Header.Get("Range") != "" && testhub.Status(http.StatusRequestedRangeNotSatisfiable)(w, r, f)
	})
	requireWhole(t, s, m)
}

func TestDripsAndStalls(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, single(64<<10))
	s := settings(t, h)
	h.Misbehave = testhub.Contents(testhub.Drip(4<<10, 40*time.Millisecond)) // 0.6 s in all, and never silent for long
	short := func(r *hub.Request) { r.Stall = 300 * time.Millisecond }
	result, err := download(t, s, short)
	require.NoError(t, err)
	requireFiles(t, result.Path, m, []string{"config.json", "model.safetensors"})

	s = settings(t, h)
	var retries atomic.Int64
	count := func(r *hub.Request) {
		r.Progress = func(e hub.Event) {
			if e.Kind == hub.EventRetry {
				retries.Add(1)
			}
		}
	}
	h.Misbehave = testhub.Contents(testhub.Times(2, testhub.Drip(40<<10, 700*time.Millisecond)))
	result, err = download(t, s, short, count)
	require.NoError(t, err)
	requireFiles(t, result.Path, m, []string{"config.json", "model.safetensors"})
	require.Positive(t, retries.Load())

	s = settings(t, h)
	h.Misbehave = func(_ http.ResponseWriter, r *http.Request, _ *testhub.File) bool {
		<-r.Context().Done() // no headers at all
		return true
	}
	_, err = download(t, s, func(r *hub.Request) { r.Stall = 20 * time.Millisecond })
	require.ErrorContains(t, err, "the server sent nothing for too long")
}

func TestBusyServer(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, single(40<<20))
	h.Misbehave = eachFirst(3, testhub.Status(http.StatusTooManyRequests))
	requireWhole(t, settings(t, h), m)

	h.Misbehave = testhub.Times(1, testhub.Status(http.StatusServiceUnavailable, "Retry-After", "1"))
	began := time.Now()
	requireWhole(t, settings(t, h), m)
	require.Greater(t, time.Since(began), time.Second)

	s := settings(t, h)
	h.Misbehave = testhub.Status(http.StatusTooManyRequests)
	_, err := download(t, s)
	require.ErrorContains(t, err, "the Hub wants fewer requests")
	h.Misbehave = testhub.Status(http.StatusTooManyRequests, "Retry-After", "86400")
	_, err = download(t, s)
	require.ErrorContains(t, err, "the server asks to wait 24h0m0s")
	h.Requests()
	h.Misbehave = testhub.Status(http.StatusBadRequest)
	_, err = download(t, s)
	require.ErrorContains(t, err, "answers 400 Bad Request")
	require.Len(t, h.Requests(), 1)
}

// eachFirst makes a fault happen to the first n requests for every range of every address.
func eachFirst(n int, f testhub.Fault) testhub.Fault {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(w http.ResponseWriter, r *http.Request, file *testhub.File) bool {
		mu.Lock()
		key := r.Method + r.URL.Path + r.Header.Get("Range")
		seen[key]++
		early := seen[key] <= n
		mu.Unlock()
		return early && f(w, r, file)
	}
}

func TestAccess(t *testing.T) {
	h := testhub.Start(t)
	m := tiny()
	m.Gated = true
	h.Add(name, m)
	s := settings(t, h)
	_, err := download(t, s)
	require.ErrorIs(t, err, hub.ErrDenied)
	require.ErrorContains(t, err, h.URL+"/"+name)
	s.Token = testhub.Token
	_, err = download(t, s)
	require.NoError(t, err)
	require.Zero(t, h.Leaked(), "the token went to the second host")

	m.Private = true
	s = settings(t, h)
	_, err = download(t, s)
	require.ErrorIs(t, err, hub.ErrNotFound)
	require.ErrorContains(t, err, "give a token")
	s.Token = "hf_wrong"
	_, err = download(t, s)
	require.ErrorIs(t, err, hub.ErrDenied)
	require.NotContains(t, err.Error(), "hf_wrong")
	s.Token = testhub.Token
	_, err = download(t, s)
	require.NoError(t, err)

	wrong := func(r *hub.Request) { r.Reference = hub.Reference{Model: "mlx-community/Qwen3-0.6B-4bits"} }
	_, err = download(t, s, wrong)
	require.ErrorIs(t, err, hub.ErrNotFound)
	require.ErrorContains(t, err, "names near it are mlx-community/Qwen3-0.6B-4bit")
	h.Misbehave = testhub.Status(http.StatusForbidden, "X-Error-Message", "Access to this resource is disabled.\u202e")
	_, err = download(t, s)
	require.ErrorIs(t, err, hub.ErrDenied)
	require.ErrorContains(t, err, "(Access to this resource is disabled")
	require.NotContains(t, err.Error(), "\u202e")
}

func TestTokenOnlyWhereItIsSafe(t *testing.T) {
	for _, endpoint := range []string{"http://hub.example", "http://10.0.0.1:8080", "http://localhost.example"} {
		_, err := download(t, hub.Settings{Endpoint: endpoint, Token: "hf_x", Cache: t.TempDir()})
		require.ErrorContains(t, err, "unprotected")
	}
	for _, endpoint := range []string{"ftp://x", "hub", "http://user:password@127.0.0.1", "https://x/?a=b"} {
		_, err := download(t, hub.Settings{Endpoint: endpoint, Cache: t.TempDir()})
		require.ErrorContains(t, err, "not an address")
		require.NotContains(t, err.Error(), "password")
	}
	_, err := download(t, hub.Settings{Endpoint: "https://hub.example", Token: "a\nb", Cache: t.TempDir()})
	require.ErrorContains(t, err, "no token has")
}

func TestRedirects(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, single(1<<20))
	h.Misbehave = func(w http.ResponseWriter, r *http.Request, _ *testhub.File) bool {
		http.Redirect(w, r, r.URL.Path+"?again", http.StatusFound)
		return true
	}
	_, err := download(t, settings(t, h))
	require.ErrorContains(t, err, "redirects in circles")

	// A model that was renamed.
	h.Misbehave = nil
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/old/name") {
			http.Redirect(w, r, strings.Replace(r.URL.RequestURI(), "old/name", name, 1), http.StatusTemporaryRedirect)
			return
		}
		proxyTo(h.URL, w, r)
	}))
	defer front.Close()
	s := settings(t, h)
	s.Endpoint = front.URL
	result, err := download(t, s, func(r *hub.Request) { r.Model = "old/name" })
	require.NoError(t, err)
	requireFiles(t, result.Path, m, []string{"config.json", "model.safetensors"})

	// An address that expires while a file comes.
	s = settings(t, h)
	m = h.Add(name, single(64<<20))
	var contents atomic.Int64
	h.Misbehave = testhub.Contents(func(w http.ResponseWriter, r *http.Request, f *testhub.File) bool {
		return f.LFS && contents.Add(1) == 3 && testhub.Status(http.StatusForbidden)(w, r, f)
	})
	result, err = download(t, s, func(r *hub.Request) { r.Parallel = 1 })
	require.NoError(t, err)
	requireFiles(t, result.Path, m, []string{"config.json", "model.safetensors"})
}

// proxyTo passes a request on, without following redirects.
func proxyTo(base string, w http.ResponseWriter, r *http.Request) {
	request, _ := http.NewRequest(r.Method, base+r.URL.RequestURI(), nil)
	request.Header = r.Header
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	for k, v := range response.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
}

func TestHostileNames(t *testing.T) {
	h := testhub.Start(t)
	evil := testhub.Text("evil")
	for _, path := range []string{
		"../../../evil.json", "/evil.json", "C:evil.json", `..\evil.json`, "con.json", "a/../evil.json", ".git/hooks/post-checkout",
		"a//b.json", "evil.json.", "nul", "a/./b.json", "new\nline.json", "evil.json:stream", strings.Repeat("x", 300) + ".json", "CoM1.json", ".cache/huggingface/token",
	} {
		files := single(1000).Files
		files[path] = evil
		h.Add(name, &testhub.Model{Files: files})
		s := settings(t, h)
		_, err := download(t, s, func(r *hub.Request) { r.Include = []string{"*"} })
		require.ErrorContains(t, err, "is not safe", "%q", path)
		require.NoDirExists(t, s.Cache, "nothing was written")
		_, _ = download(t, s) // the default leaves some of them out: see that nothing is written elsewhere
		_ = filepath.WalkDir(filepath.Dir(s.Cache), func(p string, _ os.DirEntry, _ error) error {
			require.NotContains(t, p, "evil")
			return nil
		})
	}
	files := single(1000).Files
	files["CONFIG.json"] = evil
	h.Add(name, &testhub.Model{Files: files})
	_, err := download(t, settings(t, h))
	require.ErrorContains(t, err, "one name on some systems")

	h.Add(name, &testhub.Model{Files: map[string]*testhub.File{
		"config.json": testhub.Text(`{}`), "../x.safetensors": testhub.LFS(noise(1, 10)),
		"model.safetensors.index.json": testhub.Text(`{"weight_map":{"a":"../x.safetensors"}}`),
	}})
	_, err = download(t, settings(t, h))
	require.ErrorContains(t, err, "is not safe")
}

func TestLyingHub(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, single(1<<20))
	model := m.Files["model.safetensors"]
	answer := func(text string) func(http.ResponseWriter, *http.Request, *testhub.File) bool {
		return func(w http.ResponseWriter, _ *http.Request, f *testhub.File) bool {
			if f == nil {
				_, _ = io.WriteString(w, text)
			}
			return f == nil
		}
	}
	commit := strings.Repeat("a", 40)
	for text, want := range map[string]string{
		`<html>`:              "is the endpoint a Hub?",
		`{"sha":""}`:          "names no commit",
		`{"sha":"../../etc"}`: "names no commit",
		fmt.Sprintf(`{"sha":%q,"siblings":[{"rfilename":"model.safetensors","size":-5}]}`, commit):                                      "not sensible",
		fmt.Sprintf(`{"sha":%q,"siblings":[{"rfilename":"model.safetensors","size":9223372036854775807}]}`, commit):                     "not sensible",
		fmt.Sprintf(`{"sha":%q,"siblings":[{"rfilename":"model.safetensors","size":1000}]}`, m.Commit):                                  "its size is 1000 in the list",
		fmt.Sprintf(`{"sha":%q,"siblings":[{"rfilename":"model.safetensors","lfs":{"sha256":%q}}]}`, m.Commit, strings.Repeat("b", 64)): "its hash is bbb",
		fmt.Sprintf(`{"sha":%q,"siblings":[{"rfilename":"config.json","size":2000000000}]}`, commit):                                    "more than such a file should have",
	} {
		h.Misbehave = answer(text)
		s := settings(t, h)
		_, err := download(t, s)
		require.ErrorContains(t, err, want)
		requireNothing(t, s, m, "model.safetensors")
	}

	heads := func(header ...string) func(http.ResponseWriter, *http.Request, *testhub.File) bool {
		return func(w http.ResponseWriter, r *http.Request, f *testhub.File) bool {
			if f != model || r.Method != http.MethodHead {
				return false
			}
			w.Header().Set("Location", h.Storage+"/signed/"+f.Hash+"?Signature=s")
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(http.StatusFound)
			return true
		}
	}
	for _, test := range []struct {
		header []string
		want   string
	}{
		{[]string{"X-Repo-Commit", ""}, "no X-Repo-Commit"},
		{[]string{"X-Repo-Commit", commit, "ETag", model.Hash}, "it is of commit aaaa"},
		{nil, "no hash to check"},
		{[]string{"X-Linked-Etag", `"../../../evil"`}, "no hash to check"},
		{[]string{"X-Linked-Etag", model.Hash, "X-Linked-Size", "-1"}, "not sensible"},
		{[]string{"X-Linked-Etag", model.Hash, "X-Linked-Size", "99999999999999999999"}, "not sensible"},
	} {
		h.Misbehave = heads(test.header...)
		s := settings(t, h)
		_, err := download(t, s)
		require.ErrorContains(t, err, test.want)
		requireNothing(t, s, m, "model.safetensors")
	}
	h.Misbehave = heads("X-Linked-Etag", `W/"`+model.Hash+`"`)
	requireWhole(t, settings(t, h), m) // the size is in the list

	endless := func(w http.ResponseWriter, _ *http.Request, f *testhub.File) bool {
		line := []byte(strings.Repeat(" ", 1<<20))
		for range 100 {
			if _, err := w.Write(line); err != nil {
				break
			}
		}
		return true
	}
	h.Misbehave = endless
	_, err := download(t, settings(t, h))
	require.ErrorContains(t, err, "more than the 67108864 bytes")
}

func TestNoSpace(t *testing.T) {
	h := testhub.Start(t)
	huge := testhub.LFS(noise(1, 10))
	huge.Size = 4 << 40
	h.Add(name, &testhub.Model{Files: map[string]*testhub.File{"config.json": testhub.Text(`{}`), "model.safetensors": huge}})
	h.Body()
	_, err := download(t, settings(t, h))
	require.ErrorIs(t, err, hub.ErrNoSpace)
	require.ErrorContains(t, err, "HF_HUB_CACHE")
	require.EqualValues(t, 2, h.Body(), "only config.json")
}

func TestExtraCertificates(t *testing.T) {
	h := testhub.Start(t)
	m := h.Add(name, single(1000))
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proxyTo(h.URL, w, r) }))
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	defer secure.Close()
	s := settings(t, h)
	s.Endpoint = secure.URL
	_, err := download(t, s)
	require.ErrorContains(t, err, "MLXCEL_EXTRA_CA_CERTS")
	s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	_, err = download(t, s)
	require.ErrorContains(t, err, "ca.pem")
	certificate := secure.TLS.Certificates[0].Certificate[0]
	require.NoError(t, os.WriteFile(s.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o644))
	// The second host of this Hub is plain http, to which https does not lead.
	_, err = download(t, s)
	require.ErrorContains(t, err, "unprotected")
	for _, f := range m.Files {
		f.LFS = false
	}
	m.Files["model.safetensors"] = testhub.Text("text")
	m = h.Add(name, &testhub.Model{Files: m.Files})
	s.Cache = t.TempDir()
	requireWhole(t, s, m)
}

func TestUnreachableHub(t *testing.T) {
	s := hub.Settings{Endpoint: "http://127.0.0.1:1", Cache: t.TempDir()}
	_, err := download(t, s)
	require.ErrorContains(t, err, "the Hub cannot be reached")
	require.ErrorContains(t, err, "--offline")
}

// quiet drops what a server says of handshakes that fail on purpose.
var quiet = log.New(io.Discard, "", 0)
