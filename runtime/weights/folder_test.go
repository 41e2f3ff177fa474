package weights

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
)

// folder makes a model folder of these files.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		writeFile(t, dir, name, []byte(content))
	}
	return dir
}

func TestFolder(t *testing.T) {
	dir := folder(t, map[string]string{
		"config.json":            `{"model_type": "llama"}`,
		"generation_config.json": `{"eos_token_id": 2}`,
		"tokenizer.json":         `{"model": {}}`,
		"tokenizer_config.json":  `{"bos_token": "<s>"}`,
		"chat_template.jinja":    "{{ jinja }}",
		"chat_template.json":     `{"chat_template": "{{ json }}"}`,
		"model.safetensors":      string(goodSafetensors(map[string][]byte{"a": {1, 2, 3}, "b": {4, 5}, "empty": {}})),
		"other.safetensors":      "not looked at",
	})
	c, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, FormatMLX, c.Format)
	require.Equal(t, dir, c.Path)
	require.Equal(t, filepath.Base(dir), c.Name)
	require.Equal(t, `{"model_type": "llama"}`, string(c.Config))
	require.Equal(t, `{"eos_token_id": 2}`, string(c.GenerationConfig))
	require.Equal(t, `{"model": {}}`, string(c.TokenizerJSON))
	require.Equal(t, `{"bos_token": "<s>"}`, string(c.TokenizerConfig))
	require.Equal(t, "{{ jinja }}", c.ChatTemplate)
	require.Nil(t, c.GGUF)

	require.Len(t, c.Tensors, 3)
	require.Equal(t, "a", c.Tensors["a"].Name)
	require.Equal(t, []int{3}, c.Tensors["a"].Shape)
	require.Equal(t, []byte{1, 2, 3}, read(t, c, "a"))
	require.Equal(t, []byte{4, 5}, read(t, c, "b"))
	require.Empty(t, read(t, c, "empty"))
}

func TestFolderWithLittle(t *testing.T) {
	dir := folder(t, map[string]string{
		"config.json":        "{}",
		"chat_template.json": `{"chat_template": "{{ json }}"}`,
		"model.safetensors":  string(goodSafetensors(map[string][]byte{"a": {1}})),
	})
	c, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, "{{ json }}", c.ChatTemplate)
	require.Nil(t, c.GenerationConfig)
	require.Nil(t, c.TokenizerJSON)
	require.Nil(t, c.TokenizerConfig)
}

func TestFolderNameWithPatternCharacters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model [4-bit] {x}")
	require.NoError(t, os.Mkdir(dir, 0o755))
	writeFile(t, dir, "config.json", []byte("{}"))
	writeFile(t, dir, "model.safetensors", goodSafetensors(map[string][]byte{"a": {1}}))
	c, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, []byte{1}, read(t, c, "a"))
}

func TestShards(t *testing.T) {
	one, two := goodSafetensors(map[string][]byte{"a": {1}}), goodSafetensors(map[string][]byte{"b": {2}, "unlisted": {3}})
	files := map[string]string{
		"config.json":                      "{}",
		"model-00001-of-00002.safetensors": string(one),
		"model-00002-of-00002.safetensors": string(two),
	}
	check := func(t *testing.T) {
		c, err := Open(folder(t, files))
		require.NoError(t, err)
		require.Len(t, c.Tensors, 3)
		require.Equal(t, []byte{1}, read(t, c, "a"))
		require.Equal(t, []byte{2}, read(t, c, "b"))
	}
	t.Run("without index", check)
	files[indexName] = `{"metadata": {"total_size": 3}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`
	t.Run("with index", check)
}

func TestSafetensorsTypes(t *testing.T) {
	for name, dtype := range safetensorsTypes {
		size := 6 * dtype.Size()
		header := fmt.Sprintf(`{"x": {"dtype": %q, "shape": [2, 3], "data_offsets": [0, %d]}}`, name, size)
		c, err := Open(folder(t, map[string]string{"config.json": "{}", "model.safetensors": string(safetensorsFile(header, make([]byte, size)))}))
		require.NoError(t, err, name)
		require.Equal(t, dtype, c.Tensors["x"].DType, name)
		require.EqualValues(t, size, c.Tensors["x"].Size(), name)
	}
	scalar := safetensorsFile(`{"x": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}   `, []byte{0, 0, 128, 63})
	c, err := Open(folder(t, map[string]string{"config.json": "{}", "model.safetensors": string(scalar)}))
	require.NoError(t, err)
	require.Empty(t, c.Tensors["x"].Shape)
	require.Equal(t, bindings.F32, c.Tensors["x"].DType)
	require.Equal(t, []byte{0, 0, 128, 63}, read(t, c, "x"))
}

// Files above 2 and 4 GiB, with holes that take no space.
func TestLargeSafetensors(t *testing.T) {
	const far = 5 << 30
	header := fmt.Sprintf(`{"hole": {"dtype": "U8", "shape": [%d], "data_offsets": [0, %d]}, "x": {"dtype": "U8", "shape": [3], "data_offsets": [%d, %d]}}`, far, far, far, far+3)
	dir := folder(t, map[string]string{"config.json": "{}"})
	path := writeFile(t, dir, "model.safetensors", safetensorsFile(header, nil))
	writeFar(t, path, int64(8+len(header)+far), []byte{7, 8, 9})
	c, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, []byte{7, 8, 9}, read(t, c, "x"))
	require.EqualValues(t, far, c.Tensors["hole"].Size())
}

// writeFar writes b at an offset behind the end of a file.
func writeFar(t *testing.T, path string, offset int64, b []byte) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("files on Windows have no holes unless one asks for them")
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, offset)
	require.NoError(t, errors.Join(err, f.Close()))
}

// requireError checks that an error is one clear sentence with these words.
func requireError(t *testing.T, err error, words ...string) {
	t.Helper()
	require.Error(t, err)
	for _, w := range words {
		require.ErrorContains(t, err, w)
	}
	require.NotContains(t, err.Error(), "\n")
	require.Less(t, len(err.Error()), 700)
}

func TestBadPath(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "nowhere")
	_, err := Open(missing)
	requireError(t, err, missing, "download the model")
	require.ErrorIs(t, err, os.ErrNotExist)

	text := writeFile(t, dir, "notes.txt", []byte("hello"))
	_, err = Open(text)
	requireError(t, err, text, "give a .gguf file")

	_, err = Open(os.DevNull)
	requireError(t, err, os.DevNull)

	loop := filepath.Join(dir, "loop")
	_ = os.Symlink(loop, loop) // Windows may forbid it, and Wine only says that it did
	if _, err := os.Readlink(loop); err == nil {
		_, err = Open(loop)
		requireError(t, err, loop, "cannot be read")
	}
}

func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("this user may read everything, so that no file is unreadable")
	}
	dir := folder(t, map[string]string{"config.json": "{}", "model.safetensors": string(goodSafetensors(nil))})
	require.NoError(t, os.Chmod(filepath.Join(dir, "model.safetensors"), 0))
	_, err := Open(dir)
	requireError(t, err, "model.safetensors", "cannot be read")
	require.NoError(t, os.Chmod(dir, 0))
	defer os.Chmod(dir, 0o755)
	_, err = Open(dir)
	requireError(t, err, dir, "check its permissions")
}

func TestBadFolders(t *testing.T) {
	good := string(goodSafetensors(map[string][]byte{"a": {1}}))
	tests := map[string]struct {
		files map[string]string
		want  []string
	}{
		"empty":                {nil, []string{"has no config.json", "download"}},
		"gguf beside":          {map[string]string{"x.gguf": "GGUF"}, []string{"has no config.json", "give the GGUF file itself", "x.gguf"}},
		"config not JSON":      {map[string]string{"config.json": "{", "model.safetensors": good}, []string{"config.json is damaged", "download it again"}},
		"config null":          {map[string]string{"config.json": "null", "model.safetensors": good}, []string{"config.json is damaged"}},
		"config a list":        {map[string]string{"config.json": "[1]", "model.safetensors": good}, []string{"config.json is damaged"}},
		"config a pointer":     {map[string]string{"config.json": lfsPointer + ".com/spec/v1\n"}, []string{"config.json is a Git LFS pointer", "git lfs pull"}},
		"tokenizer not JSON":   {map[string]string{"config.json": "{}", "tokenizer.json": "<html>", "model.safetensors": good}, []string{"tokenizer.json is damaged"}},
		"template not JSON":    {map[string]string{"config.json": "{}", "chat_template.json": "[]", "model.safetensors": good}, []string{"chat_template.json is damaged"}},
		"no weights":           {map[string]string{"config.json": "{}"}, []string{"has no model*.safetensors", "download"}},
		"shard missing":        {map[string]string{"config.json": "{}", "model-00002-of-00003.safetensors": good, "model-00003-of-00003.safetensors": good}, []string{"model-00001-of-00003.safetensors", "missing", "download"}},
		"indexed file missing": {map[string]string{"config.json": "{}", indexName: `{"weight_map": {"a": "model-1.safetensors"}}`}, []string{"model-1.safetensors", "missing", indexName}},
		"indexed tensor missing": {map[string]string{"config.json": "{}", "model.safetensors": good, indexName: `{"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}`},
			[]string{`tensor "b" is not in`, "model.safetensors", "download"}},
		"indexed in another file": {map[string]string{"config.json": "{}", "m1.safetensors": good, "m2.safetensors": string(goodSafetensors(map[string][]byte{"b": {1}})), indexName: `{"weight_map": {"a": "m2.safetensors", "b": "m1.safetensors"}}`},
			[]string{"is not in"}},
		"index not JSON":     {map[string]string{"config.json": "{}", indexName: "x"}, []string{indexName, "damaged"}},
		"index of a list":    {map[string]string{"config.json": "{}", indexName: `{"weight_map": []}`}, []string{indexName, "damaged"}},
		"index empty":        {map[string]string{"config.json": "{}", indexName: `{}`}, []string{indexName, "weight_map"}},
		"index leads out":    {map[string]string{"config.json": "{}", indexName: `{"weight_map": {"a": "../model.safetensors"}}`}, []string{indexName, "not in the same folder"}},
		"index absolute":     {map[string]string{"config.json": "{}", indexName: `{"weight_map": {"a": "/etc/passwd"}}`}, []string{indexName, "not in the same folder"}},
		"tensor in 2 shards": {map[string]string{"config.json": "{}", "model-a.safetensors": good, "model-b.safetensors": good}, []string{`tensor "a"`, "model-a.safetensors", "model-b.safetensors", "remove"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, test.files)
			_, err := Open(dir)
			requireError(t, err, append(test.want, dir)...)
		})
	}
}

func TestJSONThatIsAFolder(t *testing.T) {
	dir := folder(t, map[string]string{"config.json": "{}"})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tokenizer.json"), 0o755))
	_, err := Open(dir)
	requireError(t, err, filepath.Join(dir, "tokenizer.json"), "cannot be read")

	dir = folder(t, map[string]string{"config.json": "{}"})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "model.safetensors"), 0o755))
	_, err = Open(dir)
	requireError(t, err, filepath.Join(dir, "model.safetensors"), "not a regular file")
}

// badSafetensors are files that have to be refused, and words of the reason.
func badSafetensors() map[string]struct {
	file []byte
	want string
} {
	entry := func(s string) []byte { return safetensorsFile(`{"x": {`+s+`}}`, make([]byte, 16)) }
	length := func(n uint64) []byte { return append(le.AppendUint64(nil, n), `{"x": {}}`...) }
	return map[string]struct {
		file []byte
		want string
	}{
		"empty file":        {nil, "too few"},
		"7 bytes":           {make([]byte, 7), "too few"},
		"header of 2^63":    {length(1 << 63), "9223372036854775808 bytes"},
		"header of 2^64-1":  {length(1<<64 - 1), "18446744073709551615 bytes"},
		"header over 100MB": {length(maxHeader + 1), "100000001 bytes"},
		"header over file":  {length(10), "claims a header of 10 bytes"},
		"header empty":      {length(0), "no JSON object"},
		"header a list":     {safetensorsFile(`[]`, nil), "no JSON object"},
		"header text":       {safetensorsFile(`hello`, nil), "no JSON object"},
		"header cut":        {safetensorsFile(`{"x": {"dtype": "U8", "sh`, nil), `"x"`},
		"header unclosed":   {safetensorsFile(`{`, nil), "no JSON"},
		"bad metadata":      {safetensorsFile(`{"__metadata__": {`, nil), "no JSON"},
		"key no text":       {safetensorsFile(`{1: 2}`, nil), "no JSON"},
		"two objects":       {safetensorsFile(`{} {}`, nil), "something follows"},
		"entry a number":    {safetensorsFile(`{"x": 3}`, nil), `"x" cannot be read`},
		"deep nesting":      {safetensorsFile(`{"x":`+strings.Repeat("[", 100000), nil), `"x" cannot be read`},
		"pointer":           {[]byte(lfsPointer + ".github.com/spec/v1\noid sha256:00"), "Git LFS pointer"},
		"unknown type":      {entry(`"dtype": "Q7", "shape": [1], "data_offsets": [0, 1]`), `type "Q7", which mlxcel does not read`},
		"no type":           {entry(`"shape": [1], "data_offsets": [0, 1]`), `type ""`},
		"no offsets":        {entry(`"dtype": "U8", "shape": [1]`), "impossible data_offsets []"},
		"three offsets":     {entry(`"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]`), "impossible data_offsets [0 1 2]"},
		"negative offset":   {entry(`"dtype": "U8", "shape": [1], "data_offsets": [-1, 0]`), "impossible data_offsets [-1 0]"},
		"reversed offsets":  {entry(`"dtype": "U8", "shape": [1], "data_offsets": [2, 1]`), "impossible data_offsets [2 1]"},
		"offset over 2^63":  {entry(`"dtype": "U8", "shape": [1], "data_offsets": [0, 9223372036854775808]`), "cannot be read"},
		"offset a fraction": {entry(`"dtype": "U8", "shape": [1], "data_offsets": [0, 1.5]`), "cannot be read"},
		"end behind file":   {entry(`"dtype": "U8", "shape": [17], "data_offsets": [0, 17]`), "cut short"},
		"far behind file":   {entry(`"dtype": "U8", "shape": [1], "data_offsets": [9223372036854775806, 9223372036854775807]`), "cut short"},
		"size mismatch":     {entry(`"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 15]`), "needs 16 bytes, its data_offsets give it 15"},
		"scalar mismatch":   {entry(`"dtype": "F32", "shape": [], "data_offsets": [0, 0]`), "needs 4 bytes"},
		"negative dim":      {entry(`"dtype": "U8", "shape": [-1, -1], "data_offsets": [0, 1]`), "impossible shape [-1 -1]"},
		"dims overflow":     {entry(`"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]`), "impossible shape"},
		"overflow and zero": {entry(`"dtype": "F32", "shape": [4294967296, 4294967296, 0], "data_offsets": [0, 0]`), "impossible shape"},
		"dim over 2^63":     {entry(`"dtype": "U8", "shape": [9223372036854775808], "data_offsets": [0, 1]`), "cannot be read"},
		"twice": {safetensorsFile(`{"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "x": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}`, make([]byte, 2)),
			`tensor "x" twice`},
		"overlap": {safetensorsFile(`{"x": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "y": {"dtype": "U8", "shape": [1], "data_offsets": [3, 4]}}`, make([]byte, 4)),
			`"x" and "y" overlap`},
	}
}

func TestBadSafetensors(t *testing.T) {
	for name, test := range badSafetensors() {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, map[string]string{"config.json": "{}", "model.safetensors": string(test.file)})
			var err error
			requireLittleMemory(t, func() { _, err = Open(dir) })
			requireError(t, err, filepath.Join(dir, "model.safetensors"), test.want)
		})
	}
}

// requireLittleMemory checks that f does not trust lying counts.
func requireLittleMemory(t *testing.T, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

func TestFileThatShrinksLater(t *testing.T) {
	dir := folder(t, map[string]string{"config.json": "{}", "model.safetensors": string(goodSafetensors(map[string][]byte{"a": {1, 2, 3}}))})
	c, err := Open(dir)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(filepath.Join(dir, "model.safetensors"), 20))
	_, err = c.Tensors["a"].Read()
	requireError(t, err, `"a"`, "model.safetensors is damaged", "ends before")
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	_, err = c.Tensors["a"].Read()
	require.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzSafetensors(f *testing.F) {
	f.Add(goodSafetensors(map[string][]byte{"a": {1, 2, 3}, "b": {}}))
	f.Fuzz(func(t *testing.T, file []byte) {
		tensors, err := parseSafetensors(strings.NewReader(string(file)), int64(len(file)), "fuzz")
		if err != nil {
			return
		}
		for name, tensor := range tensors {
			p := tensor.Parts[0]
			if name != tensor.Name || p.Size != tensor.Size() || p.Offset < 8 || p.Size < 0 || p.Offset+p.Size > int64(len(file)) {
				t.Fatalf("tensor %q lies outside of the file: %+v", name, tensor)
			}
		}
	})
}

// What is not a regular file is not read: a pipe would be waited for, a device has no end.
func TestIrregularFiles(t *testing.T) {
	dir := folder(t, map[string]string{"model.safetensors": string(goodSafetensors(nil))})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "config.json"), 0o755))
	_, err := Open(dir)
	requireError(t, err, "config.json", "it is not a regular file")
}
