package hub

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGlobs(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.json", "config.json", true}, {"*.json", "a/b.json", true}, {"*.json", "x.jsonl", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"a/", "a/b/c", true}, {"a/", "b/a/c", false}, {"[ab].txt", "b.txt", true}, {"[!ab].txt", "b.txt", false}, {"[!ab].txt", "c.txt", true},
		{"[a-c]x", "bx", true}, {"[]x]", "]", true}, {"[", "[", true}, {"[z-a]", "[z-a]", true}, {"a.b", "axb", false}, {"(a|b)+", "(a|b)+", true},
		{"*", "", true}, {"", "", true}, {"a\\d", "a5", false}, {"\xff*", "x", false},
	} {
		require.Equal(t, test.want, globs{test.pattern}.match(test.name), "%q %q", test.pattern, test.name)
	}
}

func TestParseListing(t *testing.T) {
	commit, sha1, sha256 := strings.Repeat("c", 40), strings.Repeat("1", 40), strings.Repeat("2", 64)
	l, err := parseListing(fmt.Appendf(nil, `{"sha":%q,"tags":["mlx","license:mit"],"siblings":[
		{"rfilename":"a","size":5,"blobId":%q},
		{"rfilename":"b","size":9,"blobId":%q,"lfs":{"sha256":%q,"size":7,"pointerSize":130}},
		{"rfilename":"c"}]}`, commit, sha1, sha1, sha256))
	require.NoError(t, err)
	require.Equal(t, &listing{commit, "mit", []file{{"a", 5, sha1}, {"b", 7, sha256}, {"c", -1, ""}}}, l)
	many := `{"sha":"` + commit + `","siblings":[` + strings.Repeat(`{},`, maxFiles) + `{}]}`
	_, err = parseListing([]byte(many))
	require.ErrorContains(t, err, "more than the 100000")
}

func TestParseMetadata(t *testing.T) {
	commit, sha1, sha256 := strings.Repeat("c", 40), strings.Repeat("1", 40), strings.Repeat("2", 64)
	header := func(pairs ...string) http.Header {
		h := http.Header{"X-Repo-Commit": {commit}}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	m, err := parseMetadata(200, header("ETag", `"`+sha1+`"`, "Content-Length", "5"))
	require.NoError(t, err)
	require.Equal(t, metadata{commit, sha1, 5}, m)
	m, err = parseMetadata(302, header("ETag", `"x"`, "X-Linked-Etag", `W/"`+sha256+`"`, "X-Linked-Size", "7", "Content-Length", "5"))
	require.NoError(t, err)
	require.Equal(t, metadata{commit, sha256, 7}, m)
	m, err = parseMetadata(302, header("X-Linked-Etag", sha256, "Content-Length", "5"))
	require.NoError(t, err)
	require.Equal(t, metadata{commit, sha256, -1}, m, "the length of a redirect is not that of the file")
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "x": 0, "99999999999999": 0,
		"Tue, 01 Dec 2026 10:00:30 GMT": 30 * time.Second, "Tue, 01 Dec 2026 09:00:00 GMT": 0,
	} {
		require.Equal(t, want, retryAfter(value, now), value)
	}
	for failures := 1; failures < maxAttempts; failures++ {
		wait := backoffAfter(failures, time.Second)
		ideal := min(time.Second<<(failures-1), maxBackoff)
		require.GreaterOrEqual(t, wait, ideal*3/4)
		require.LessOrEqual(t, wait, ideal*5/4)
	}
}

func TestPrintable(t *testing.T) {
	require.Equal(t, "a b", printable("a\x1b b\n\u202e.", 10))
	require.Equal(t, "ab…", printable("abc", 2))
}

func TestParts(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	size := int64(2*partSize + 5)
	p, err := openParts(root, "x", size)
	require.NoError(t, err)
	require.False(t, p.resumed)
	require.Equal(t, []int{0, 1, 2}, p.missing())
	require.Zero(t, p.frontier(0))
	p.done[0].Store(partSize)
	p.done[1].Store(7)
	p.done[2].Store(5)
	require.Equal(t, []int{1}, p.missing())
	require.Equal(t, int64(partSize+7), p.frontier(0))
	require.Equal(t, int64(partSize+12), p.arrived())
	require.NoError(t, p.save(true))
	p.close()

	p, err = openParts(root, "x", size)
	require.NoError(t, err)
	require.True(t, p.resumed)
	require.Equal(t, int64(partSize+12), p.arrived())
	p.done[1].Store(partSize)
	require.Equal(t, size, p.frontier(0))
	require.NoError(t, p.remove())

	// One of another size, and a link, are begun anew.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "elsewhere"), make([]byte, 10), 0o644))
	require.NoError(t, os.Symlink("elsewhere", filepath.Join(dir, "x")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.json"), []byte(`{"size":10,"part_size":10,"done":[10]}`), 0o644))
	p, err = openParts(root, "x", 10)
	require.NoError(t, err)
	require.False(t, p.resumed)
	require.NoError(t, p.remove())
	require.FileExists(t, filepath.Join(dir, "elsewhere"))
}

func TestNeededFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.ErrorContains(t, whole(dir), "its weights are missing")
	write("model-00001-of-00003.safetensors", "")
	require.ErrorContains(t, whole(dir), "config.json is missing")
	write("config.json", "{}")
	write("model-00002-of-00003.safetensors", "")
	require.ErrorContains(t, whole(dir), "model-00003-of-00003.safetensors is missing")
	write("model-00003-of-00003.safetensors", "")
	require.NoError(t, whole(dir))
	write(indexName, `{"weight_map":{"a":"b.safetensors"}}`)
	require.ErrorContains(t, whole(dir), "b.safetensors is missing")
	write(indexName, `{"weight_map":{"a":"../b.safetensors"}}`)
	require.ErrorContains(t, whole(dir), "is not safe")
	require.Error(t, whole(filepath.Join(dir, "none")))
}

func TestReadConfig(t *testing.T) {
	for text, want := range map[string]Info{
		`{"model_type":"llama","torch_dtype":"bfloat16","max_position_embeddings":8}`:                                             {Type: "llama", Quantization: "bfloat16", Context: 8},
		`{"model_type":"x","quantization":{"bits":4,"group_size":32,"mode":"mxfp4"},"text_config":{"max_position_embeddings":9}}`: {Type: "x", Quantization: "mxfp4 4 bit, group 32", Context: 9},
		`{"quantization_config":{"quant_method":"gptq"}}`:                                                                         {Quantization: "gptq"},
		`{"max_position_embeddings":-4}`:                                                                                          {},
		`[]`:                                                                                                                      {},
		`{"model_type":5}`:                                                                                                        {},
	} {
		var got Info
		got.readConfig([]byte(text))
		require.Equal(t, want, got, text)
	}
	require.Equal(t, "mit", cardLicence("---\nlanguage: en\nlicense: 'mit'\n---\nlicense: no"))
	require.Empty(t, cardLicence("# x\nlicense: mit"))
	require.Empty(t, cardLicence("---\n---\nlicense: mit"))
}

// FuzzListing: what is accepted has a commit, and sizes and hashes of the right form; choosing from it gives harmless
// paths only.
func FuzzListing(f *testing.F) {
	commit := strings.Repeat("c", 40)
	f.Add([]byte(`{"sha":"` + commit + `","tags":["license:x"],"siblings":[{"rfilename":"config.json","size":3,"blobId":"x"},{"rfilename":"model.safetensors","lfs":{"sha256":"y","size":4}}]}`))
	f.Add([]byte(`{"sha":"` + commit + `","siblings":[{"rfilename":"../x.json"},{"rfilename":"model.safetensors"}]}`))
	f.Add([]byte(`{"sha":"` + commit + `","tags":{},"siblings":[{"rfilename":"con.gguf","size":-1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parseListing(text)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.Regexp(t, commitHash, l.Commit)
		for _, file := range l.Files {
			require.True(t, file.Size >= -1 && file.Size <= maxSize)
			require.True(t, file.Hash == "" || gitHash.MatchString(file.Hash) || sha256Hash.MatchString(file.Hash))
		}
		for _, s := range []selection{{}, {include: globs{"*"}}, {part: "q4"}} {
			first, err := s.first(l.Files)
			if err != nil {
				continue
			}
			weights, _ := s.weights(l.Files, nil)
			for _, file := range append(first, weights...) {
				require.True(t, filepath.IsLocal(filepath.FromSlash(file.Path)), "%q", file.Path)
				require.NotContains(t, file.Path, `\`)
			}
		}
	})
}

// FuzzHeaders: what is accepted can be a file name and a size.
func FuzzHeaders(f *testing.F) {
	f.Add(200, strings.Repeat("c", 40), `"`+strings.Repeat("1", 40)+`"`, "", "5", "")
	f.Add(302, strings.Repeat("c", 40), `"x"`, `W/"`+strings.Repeat("1", 64)+`"`, "5", "7")
	f.Add(302, "../x", `"../../x"`, `"`, "-5", "99999999999999999999")
	f.Fuzz(func(t *testing.T, status int, commit, etag, linkedEtag, length, linkedSize string) {
		m, err := parseMetadata(status, http.Header{
			"X-Repo-Commit": {commit}, "Etag": {etag}, "X-Linked-Etag": {linkedEtag}, "Content-Length": {length}, "X-Linked-Size": {linkedSize},
		})
		if err != nil {
			return
		}
		require.Regexp(t, commitHash, m.Commit)
		require.True(t, gitHash.MatchString(m.Hash) || sha256Hash.MatchString(m.Hash), m.Hash)
		require.True(t, m.Size >= -1 && m.Size <= maxSize)
	})
}

// FuzzIndex: an index never makes a download leave its folder.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"weight_map":{"a":"model.safetensors","b":"../model.safetensors"}}`))
	f.Add([]byte(`{"weight_map":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all := []file{{Path: "model.safetensors"}, {Path: "../model.safetensors"}, {Path: "pytorch_model.bin"}}
		chosen, err := selection{}.weights(all, text)
		if err == nil {
			require.Equal(t, all[:1], chosen)
		}
	})
}
