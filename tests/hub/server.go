// Package testhub is a Hugging Face Hub on this machine, for tests: it behaves as the real one does towards downloads,
// and misbehaves on demand. Files of the LFS kind lie on a second host, to which it redirects.
package testhub

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Token is the one that the Hub accepts.
const Token = "hf_secret"

// Hub is a running server.
type Hub struct {
	URL     string // the endpoint
	Storage string // the second host

	// Misbehave, if not nil, may answer a request in place of the Hub, and then returns true. The file is nil for
	// requests that are for no file's contents or headers. Set it while no requests are running.
	Misbehave func(w http.ResponseWriter, r *http.Request, f *File) bool

	mu       sync.Mutex
	models   map[string]*Model
	blobs    map[string]*File // by hash
	requests []string         // "METHOD path", to both hosts
	leaked   int              // requests to the second host with a token

	body atomic.Int64 // bytes of files' contents that went out
}

// Model is a model that the Hub has.
type Model struct {
	Commit   string
	Branches []string // names that lead to the commit, beside main
	Files    map[string]*File
	Tags     []string
	Gated    bool // headers and contents only with the token
	Private  bool // nothing without the token
}

// File is a file of a model.
type File struct {
	Content io.ReaderAt
	Size    int64
	LFS     bool
	Hash    string // SHA-256 for LFS, else git SHA-1
}

// Text makes a file that lies in git.
func Text(text string) *File { return newFile([]byte(text), false) }

// LFS makes a file that lies on the second host.
func LFS(data []byte) *File { return newFile(data, true) }

func newFile(data []byte, lfs bool) *File {
	f := &File{Content: bytes.NewReader(data), Size: int64(len(data)), LFS: lfs}
	if lfs {
		sum := sha256.Sum256(data)
		f.Hash = hex.EncodeToString(sum[:])
		return f
	}
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(data), data))
	f.Hash = hex.EncodeToString(sum[:])
	return f
}

// Start starts a Hub that ends with the test.
func Start(t testing.TB) *Hub {
	h := &Hub{models: map[string]*Model{}, blobs: map[string]*File{}}
	hub, storage := httptest.NewServer(http.HandlerFunc(h.serve)), httptest.NewServer(http.HandlerFunc(h.serveStorage))
	t.Cleanup(hub.Close)
	t.Cleanup(storage.Close)
	h.URL = hub.URL
	h.Storage = strings.Replace(storage.URL, "127.0.0.1", "localhost", 1)
	return h
}

// Add publishes a model, or a new state of one. The commit, if not given, comes of the files.
func (h *Hub) Add(name string, m *Model) *Model {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Commit == "" {
		sum := sha1.New()
		for _, path := range slices.Sorted(maps.Keys(m.Files)) {
			fmt.Fprintln(sum, path, m.Files[path].Hash)
		}
		m.Commit = hex.EncodeToString(sum.Sum(nil))
	}
	for _, f := range m.Files {
		h.blobs[f.Hash] = f
	}
	h.models[name] = m
	return m
}

// Body returns how many bytes of files' contents went out since the last call.
func (h *Hub) Body() int64 { return h.body.Swap(0) }

// Leaked returns how many requests brought a token to the second host.
func (h *Hub) Leaked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leaked
}

// Requests returns the requests since the last call, as "METHOD path".
func (h *Hub) Requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.requests
	h.requests = nil
	return list
}

func (h *Hub) note(r *http.Request, storage bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r.Method+" "+r.URL.Path)
	if storage && r.Header.Get("Authorization") != "" {
		h.leaked++
	}
}

// fail answers as the Hub does to what is wrong.
func fail(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	http.Error(w, message, status)
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	h.note(r, false)
	path := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(path, "/api/resolve-cache/models/"); ok { // ORG/NAME/COMMIT/PATH
		parts := strings.SplitN(rest, "/", 4)
		if len(parts) == 4 {
			h.serveFile(w, r, parts[0]+"/"+parts[1], parts[2], parts[3], true)
			return
		}
	}
	if rest, ok := strings.CutPrefix(path, "/api/models/"); ok { // ORG/NAME[/revision/REV | /tree/REV]
		parts := strings.SplitN(rest, "/", 4)
		if len(parts) == 4 && (parts[2] == "revision" || parts[2] == "tree") {
			h.serveListing(w, r, parts[0]+"/"+parts[1], parts[3], parts[2] == "tree")
			return
		}
	}
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 5) // ORG/NAME/resolve/REV/PATH
	if len(parts) == 5 && parts[2] == "resolve" {
		h.serveFile(w, r, parts[0]+"/"+parts[1], parts[3], parts[4], false)
		return
	}
	fail(w, http.StatusNotFound, "", "Sorry, we can't find the page you are looking for.")
}

// find returns a model at a revision, or answers that it cannot.
func (h *Hub) find(w http.ResponseWriter, r *http.Request, name, revision string) *Model {
	revision, _ = url.PathUnescape(revision)
	h.mu.Lock()
	m := h.models[name]
	h.mu.Unlock()
	authorized := r.Header.Get("Authorization") == "Bearer "+Token
	switch {
	case (m == nil || m.Private) && !authorized:
		fail(w, http.StatusUnauthorized, "", "Invalid username or password.")
	case m == nil:
		fail(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
	case revision != m.Commit && revision != "main" && !slices.Contains(m.Branches, revision):
		fail(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
	default:
		return m
	}
	return nil
}

func (h *Hub) serveListing(w http.ResponseWriter, r *http.Request, name, revision string, tree bool) {
	if h.Misbehave != nil && h.Misbehave(w, r, nil) {
		return
	}
	m := h.find(w, r, name, revision)
	if m == nil {
		return
	}
	list := []map[string]any{}
	for _, path := range slices.Sorted(maps.Keys(m.Files)) {
		f := m.Files[path]
		e := map[string]any{"size": f.Size}
		if tree {
			e["type"], e["path"], e["oid"] = "file", path, f.Hash
		} else {
			e["rfilename"], e["blobId"] = path, f.Hash
		}
		if f.LFS {
			oid := hex.EncodeToString(make([]byte, 20)) // of the pointer
			e["lfs"] = map[string]any{"sha256": f.Hash, "oid": f.Hash, "size": f.Size, "pointerSize": 134}
			if tree {
				e["oid"] = oid
			} else {
				e["blobId"] = oid
			}
		}
		list = append(list, e)
	}
	var answer any = list
	if !tree {
		answer = map[string]any{
			"_id": "0", "id": name, "modelId": name, "sha": m.Commit, "private": m.Private, "gated": m.Gated,
			"tags": append([]string{"mlx"}, m.Tags...), "downloads": 1, "likes": 0, "siblings": list,
		}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(answer)
}

func (h *Hub) serveFile(w http.ResponseWriter, r *http.Request, name, revision, path string, cached bool) {
	m := h.find(w, r, name, revision)
	if m == nil {
		return
	}
	unescaped, _ := url.PathUnescape(path)
	f := m.Files[unescaped]
	w.Header().Set("X-Repo-Commit", m.Commit)
	switch {
	case m.Gated && r.Header.Get("Authorization") != "Bearer "+Token:
		fail(w, http.StatusUnauthorized, "GatedRepo", "Access to model "+name+" is restricted. You must have access to it and be authenticated to access it. Please log in.")
		return
	case f == nil:
		fail(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	case h.Misbehave != nil && h.Misbehave(w, r, f):
		return
	}
	w.Header().Set("Accept-Ranges", "bytes")
	switch {
	case f.LFS:
		w.Header().Set("X-Linked-Etag", `"`+f.Hash+`"`)
		w.Header().Set("X-Linked-Size", strconv.FormatInt(f.Size, 10))
		w.Header().Set("Location", h.Storage+"/signed/"+f.Hash+"?Expires=1&Signature=s")
		w.WriteHeader(http.StatusFound)
	case !cached:
		w.Header().Set("ETag", `"`+f.Hash+`"`)
		w.Header().Set("Location", "/api/resolve-cache/models/"+name+"/"+m.Commit+"/"+path)
		w.WriteHeader(http.StatusTemporaryRedirect)
	default:
		w.Header().Set("ETag", `"`+f.Hash+`"`)
		h.Serve(w, r, f)
	}
}

func (h *Hub) serveStorage(w http.ResponseWriter, r *http.Request) {
	h.note(r, true)
	hash := strings.TrimPrefix(r.URL.Path, "/signed/")
	h.mu.Lock()
	f := h.blobs[hash]
	h.mu.Unlock()
	switch {
	case f == nil || r.URL.Query().Get("Signature") == "":
		http.Error(w, "AccessDenied", http.StatusForbidden)
	case h.Misbehave != nil && h.Misbehave(w, r, f):
	default:
		w.Header().Set("ETag", `"storage-`+hash[:8]+`"`) // not the Hub's
		h.Serve(w, r, f)
	}
}

// Serve sends a file's contents, or the range of it that is asked for.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, f *File) {
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(&counting{w, h}, r, "", time.Time{}, io.NewSectionReader(f.Content, 0, f.Size))
}

// counting counts the bytes of bodies.
type counting struct {
	http.ResponseWriter
	hub *Hub
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.hub.body.Add(int64(n))
	return n, err
}

// ReadFrom lets the kernel send what lies in a file.
func (c *counting) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.ResponseWriter, r)
	c.hub.body.Add(n)
	return n, err
}

// OnDisk makes a file of the LFS kind of one that is open.
func OnDisk(t testing.TB, f *os.File, size int64) *File {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
		t.Fatal(err)
	}
	return &File{Content: f, Size: size, LFS: true, Hash: hex.EncodeToString(sum.Sum(nil))}
}
