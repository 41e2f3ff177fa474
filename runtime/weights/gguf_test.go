package weights

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetadataTypes(t *testing.T) {
	values := []any{
		uint8(200), int8(-3), uint16(60000), int16(-300), uint32(4e9), int32(-7), float32(0.25), true, false, "Ġtext",
		uint64(1 << 63), int64(-1 << 62), float64(math.Pi),
		[]uint8{1, 2}, []int8{-1}, []uint16{1}, []int16{-2, 2}, []uint32{3}, []int32{-4}, []float32{0.5}, []bool{true, false},
		[]string{"a", "", "ü"}, []uint64{1 << 60}, []int64{-1}, []float64{2.5}, []string{}, []int32{},
	}
	f := tinyGGUF("llama", typeQ4_0)
	name := func(i int) string { return "test." + string(rune('a'+i)) }
	for i, v := range values {
		f.set(name(i), v)
	}
	meta := mustOpen(t, f).GGUF.Meta
	for i, v := range values {
		require.Equal(t, v, meta[name(i)])
	}
}

// badGGUFs are files that have to be refused, and words of the reason.
func badGGUFs() map[string]struct {
	change func(f *ggufFile)
	want   string
} {
	u64 := func(v uint64) *uint64 { return &v }
	array := func(kind uint32, n uint64, data ...byte) rawValue {
		return append(le.AppendUint64(le.AppendUint32(le.AppendUint32(nil, metaArray), kind), n), data...)
	}
	text := func(n uint64) rawValue { return le.AppendUint64(le.AppendUint32(nil, metaString), n) }
	return map[string]struct {
		change func(f *ggufFile)
		want   string
	}{
		"magic":              {func(f *ggufFile) { f.magic = "GGML" }, "is no GGUF file"},
		"version 1":          {func(f *ggufFile) { f.version = 1 }, "GGUF version 1"},
		"version 4":          {func(f *ggufFile) { f.version = 4 }, "GGUF version 4"},
		"big-endian":         {func(f *ggufFile) { f.version = 3 << 24 }, "big-endian"},
		"2^60 tensors":       {func(f *ggufFile) { f.tensorCount = u64(1 << 60) }, "claims 1152921504606846976 tensors"},
		"2^64-1 keys":        {func(f *ggufFile) { f.keyCount = u64(1<<64 - 1) }, "18446744073709551615 metadata keys"},
		"a tensor too much":  {func(f *ggufFile) { f.tensorCount = u64(uint64(len(f.tensors) + 1)) }, "damaged"},
		"a million tensors":  {func(f *ggufFile) { f.tensorCount = u64(1 << 20) }, "damaged"},
		"a key too much":     {func(f *ggufFile) { f.keyCount = u64(uint64(len(f.keys) + 1)) }, "damaged"},
		"key twice":          {func(f *ggufFile) { f.keys = append(f.keys, f.keys[0]) }, `"general.architecture" twice`},
		"text of 2^63":       {func(f *ggufFile) { f.set("x", text(1<<63)) }, "text of 9223372036854775808 bytes"},
		"text over file":     {func(f *ggufFile) { f.set("x", text(1<<25)) }, "claims 33554432 more"},
		"array of 2^60":      {func(f *ggufFile) { f.set("x", array(4, 1<<60)) }, `"x" claims an array of 1152921504606846976`},
		"array over file":    {func(f *ggufFile) { f.set("x", array(12, 1<<24)) }, "claims 16777216 more"},
		"texts over file":    {func(f *ggufFile) { f.set("x", array(metaString, 1<<24)) }, "claims 16777216 more"},
		"bools over file":    {func(f *ggufFile) { f.set("x", array(metaBool, 1<<24)) }, "claims 16777216 more"},
		"text in array":      {func(f *ggufFile) { f.set("x", array(metaString, 1, 255, 255, 255, 0, 0, 0, 0, 0)) }, "claims 16777215 more"},
		"array of arrays":    {func(f *ggufFile) { f.set("x", array(metaArray, 1)) }, "array of arrays"},
		"array of unknown":   {func(f *ggufFile) { f.set("x", array(77, 1)) }, "array of the unknown type 77"},
		"unknown value type": {func(f *ggufFile) { f.set("x", rawValue{13, 0, 0, 0}) }, "unknown type 13"},

		"other architecture":     {func(f *ggufFile) { f.set("general.architecture", "mamba") }, `architecture "mamba"; mlxcel reads GGUF files of llama, qwen2, qwen3, qwen3moe`},
		"no architecture":        {func(f *ggufFile) { f.set("general.architecture", nil) }, `architecture ""`},
		"architecture a number":  {func(f *ggufFile) { f.set("general.architecture", uint32(3)) }, `architecture ""`},
		"one part of a model":    {func(f *ggufFile) { f.set("split.count", uint16(3)) }, "one of 3 parts"},
		"no layers":              {func(f *ggufFile) { f.set("llama.block_count", nil) }, "lacks the metadata key llama.block_count"},
		"0 layers":               {func(f *ggufFile) { f.set("llama.block_count", uint32(0)) }, "llama.block_count is 0"},
		"4e9 layers":             {func(f *ggufFile) { f.set("llama.block_count", uint32(4e9)) }, "llama.block_count is 4000000000"},
		"2^31-1 layers":          {func(f *ggufFile) { f.set("llama.block_count", uint32(1<<31-1)) }, "claims 2147483647 layers"},
		"layers a text":          {func(f *ggufFile) { f.set("llama.block_count", "two") }, "llama.block_count is \"two\""},
		"hidden 2^64-1":          {func(f *ggufFile) { f.set("llama.embedding_length", uint64(math.MaxUint64)) }, "llama.embedding_length is 18446744073709551615"},
		"negative heads":         {func(f *ggufFile) { f.set("llama.attention.head_count", int32(-4)) }, "head_count is -4"},
		"heads of other size":    {func(f *ggufFile) { f.set("llama.attention.head_count", uint32(3)) }, "damaged"},
		"heads per layer":        {func(f *ggufFile) { f.set("llama.attention.head_count", []uint32{4, 2}) }, "reads GGUF files where it is the same for all layers"},
		"heads, none":            {func(f *ggufFile) { f.set("llama.attention.head_count", []int32{}) }, "head_count is []int32, and an integer"},
		"more heads than hidden": {func(f *ggufFile) { f.set("llama.attention.head_count", uint32(1<<30)) }, "damaged"},
		"no kv heads":            {func(f *ggufFile) { f.set("llama.attention.head_count_kv", uint32(0)) }, "head_count_kv is 0"},
		"odd kv heads":           {func(f *ggufFile) { f.set("llama.attention.head_count_kv", uint32(3)) }, "head_count_kv is 3"},
		"no head size":           {func(f *ggufFile) { f.set("llama.attention.key_length", uint32(0)) }, "damaged"},
		"huge head size":         {func(f *ggufFile) { f.set("llama.attention.key_length", uint32(1<<31-1)) }, "damaged"},
		"value size":             {func(f *ggufFile) { f.set("llama.attention.value_length", uint32(8)) }, "value_length is 8"},
		"partial rope":           {func(f *ggufFile) { f.set("llama.rope.dimension_count", uint32(8)) }, "dimension_count is 8"},
		"eps a text":             {func(f *ggufFile) { f.set("llama.attention.layer_norm_rms_epsilon", "small") }, "a value of type float32 was expected"},
		"eps infinite":           {func(f *ggufFile) { f.set("llama.attention.layer_norm_rms_epsilon", float32(math.Inf(1))) }, "config.json"},
		"longrope": {func(f *ggufFile) {
			f.set("llama.rope.scaling.type", "longrope")
			f.set("llama.rope.scaling.factor", float32(2))
		}, `RoPE scaling of type "longrope"`},
		"attention factor": {func(f *ggufFile) {
			f.set("llama.rope.scaling.type", "yarn")
			f.set("llama.rope.scaling.factor", float32(2))
			f.set("llama.rope.scaling.attn_factor", float32(2))
		}, "attn_factor"},
		"factors twice": {func(f *ggufFile) {
			f.set("llama.rope.scaling.type", "linear")
			f.set("llama.rope.scaling.factor", float32(2))
			f.add(rand.New(rand.NewPCG(1, 1)), "rope_freqs.weight", typeF32, tinyHead/2)
		}, "both RoPE factors and linear"},
		"factors too long": {func(f *ggufFile) {
			f.add(rand.New(rand.NewPCG(1, 1)), "rope_freqs.weight", typeF32, tinyHead)
		}, "rope_freqs.weight"},
		"tokens no texts":   {func(f *ggufFile) { f.set("tokenizer.ggml.tokens", []int32{1}) }, "tokenizer.ggml.tokens is []int32"},
		"types too few":     {func(f *ggufFile) { f.set("tokenizer.ggml.token_type", []int32{1}) }, "8 tokens, 1 token types"},
		"scores too few":    {func(f *ggufFile) { f.set("tokenizer.ggml.scores", []float32{1}) }, "1 scores"},
		"bos outside":       {func(f *ggufFile) { f.set("tokenizer.ggml.bos_token_id", uint32(8)) }, "bos_token_id is 8"},
		"template a number": {func(f *ggufFile) { f.set("tokenizer.chat_template", uint32(8)) }, "tokenizer.chat_template is 8"},

		"Q4_K":                 {func(f *ggufFile) { f.get("blk.1.ffn_up.weight").kind = 12 }, "tensor blk.1.ffn_up.weight has type Q4_K; mlxcel reads F32, F16, BF16, Q4_0, Q4_1 and Q8_0: convert it, or take the MLX version"},
		"unknown tensor type":  {func(f *ggufFile) { f.get("blk.1.ffn_up.weight").kind = 1 << 30 }, "type number 1073741824"},
		"tensor twice":         {func(f *ggufFile) { f.tensors = append(f.tensors, f.tensors[3]) }, "twice"},
		"unknown tensor":       {func(f *ggufFile) { f.get("blk.1.ffn_up.weight").name = "blk.1.ffn_upp.weight" }, `tensor "blk.1.ffn_upp.weight" that mlxcel does not know`},
		"unknown parameter":    {func(f *ggufFile) { f.get("blk.1.ffn_up.weight").name = "blk.1.ffn_up.scale" }, "does not know"},
		"norm of a head":       {func(f *ggufFile) { f.get("blk.1.ffn_up.weight").name = "blk.1.attn_q_norm.weight" }, "does not know"},
		"layer 01":             {func(f *ggufFile) { f.get("blk.1.ffn_up.weight").name = "blk.01.ffn_up.weight" }, "does not know"},
		"no dot":               {func(f *ggufFile) { f.get("blk.1.ffn_up.weight").name = "weight" }, "does not know"},
		"no embedding":         {func(f *ggufFile) { f.remove("token_embd") }, "lacks the tensor token_embd.weight"},
		"embedding too narrow": {func(f *ggufFile) { f.get("token_embd.weight").dims = []uint64{32, 16} }, "token_embd.weight has the shape [16 32]"},
		"last layer missing":   {func(f *ggufFile) { f.remove("blk.1.attn_norm") }, "lacks the tensor blk.1.attn_norm.weight"},
		"rows no heads":        {func(f *ggufFile) { f.get("blk.1.attn_q.weight").dims = []uint64{96, 32} }, "4 heads of 16 were expected"},
		"quantized norm": {func(f *ggufFile) {
			*f.get("output_norm.weight") = ggufData{name: "output_norm.weight", kind: typeQ8_0, dims: []uint64{32}, data: make([]byte, 34)}
		}, "cannot have"},
		"long name":           {func(f *ggufFile) { f.tensors[0].name = string(make([]byte, 2000)) }, "text of 2000 bytes"},
		"no dimensions":       {func(f *ggufFile) { f.tensors[0].dims = nil }, "has 0 dimensions"},
		"5 dimensions":        {func(f *ggufFile) { f.tensors[0].dims = []uint64{32, 1, 1, 1, 1} }, "has 5 dimensions"},
		"dimension 0":         {func(f *ggufFile) { f.tensors[0].dims = []uint64{64, 0} }, "dimension of 0"},
		"dimension 2^63":      {func(f *ggufFile) { f.tensors[0].dims = []uint64{1 << 63} }, "dimension of 9223372036854775808"},
		"dimensions overflow": {func(f *ggufFile) { f.tensors[0].dims = []uint64{1 << 40, 1 << 40} }, "impossible shape"},
		"no whole blocks":     {func(f *ggufFile) { f.tensors[0].dims = []uint64{33, 8} }, "no whole blocks of Q8_0"},
		"too many rows":       {func(f *ggufFile) { f.tensors[0].dims = []uint64{64, 1 << 40} }, "cut short"},
		"offset unaligned":    {func(f *ggufFile) { f.tensors[1].offset = u64(33) }, "no multiple of the alignment"},
		"offset 2^63":         {func(f *ggufFile) { f.tensors[1].offset = u64(1 << 63) }, "starts at byte 9223372036854775808"},
		"offset over file":    {func(f *ggufFile) { f.tensors[1].offset = u64(1 << 40) }, "cut short"},
		"overlap":             {func(f *ggufFile) { f.tensors[1].offset = u64(0) }, "overlap"},
		"alignment 0":         {func(f *ggufFile) { f.set("general.alignment", uint32(0)) }, "alignment"},
		"alignment 48":        {func(f *ggufFile) { f.set("general.alignment", uint32(48)) }, "power of two"},
		"alignment 2^31":      {func(f *ggufFile) { f.set("general.alignment", uint32(1<<31)) }, "power of two"},
		"alignment a text":    {func(f *ggufFile) { f.set("general.alignment", "32") }, "power of two"},
	}
}

func TestBadGGUF(t *testing.T) {
	for name, test := range badGGUFs() {
		t.Run(name, func(t *testing.T) {
			f := tinyGGUF("llama", typeQ4_0)
			test.change(f)
			path := writeFile(t, t.TempDir(), "bad.gguf", f.bytes())
			var err error
			requireLittleMemory(t, func() { _, err = Open(path) })
			requireError(t, err, path, test.want)
		})
	}
}

// A file that ends anywhere is refused, whatever was read until then.
func TestTruncatedGGUF(t *testing.T) {
	whole := tinyGGUF("llama", typeQ4_0).bytes()
	path := writeFile(t, t.TempDir(), "cut.gguf", whole)
	for n := len(whole) - 1; n >= 0; n -= 1 + n/300 {
		require.NoError(t, os.Truncate(path, int64(n)))
		_, err := Open(path)
		requireError(t, err, path)
	}
}

func TestGGUFPointer(t *testing.T) {
	_, err := openBytes(t, []byte(lfsPointer+".github.com/spec/v1\noid sha256:00"))
	requireError(t, err, "Git LFS pointer")
}

func TestGGUFByItsContents(t *testing.T) {
	path := writeFile(t, t.TempDir(), "sha256-0123", tinyGGUF("qwen3", typeF16).bytes())
	c, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, "sha256-0123", c.Name)
}

func TestLargeGGUF(t *testing.T) {
	const vocab = 40 << 20 // rows of 64 F16: 5 GiB
	f := tinyGGUF("qwen2", typeQ4_1)
	norm := f.get("output_norm.weight")
	f.remove("output_norm")
	f.tensors[0].kind, f.tensors[0].dims, f.tensors[0].data = typeF16, []uint64{tinyHidden, vocab}, nil
	far := uint64(vocab * tinyHidden * 2)
	for _, other := range f.tensors[1:] {
		offset := far
		other.offset = &offset
		far += uint64(len(other.data)+31) &^ 31
	}
	norm.offset = &far
	f.tensors = append(f.tensors, norm)

	// The writer puts the data right behind the header; it belongs far off.
	head := *f
	head.tensors = nil
	for _, other := range f.tensors {
		without := *other
		if other.offset == nil {
			without.offset = new(uint64)
		}
		without.data = nil
		head.tensors = append(head.tensors, &without)
	}
	header := head.bytes()
	path := writeFile(t, t.TempDir(), "large.gguf", header)
	writeFar(t, path, int64(len(header))+int64(far), norm.data)
	c, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, []int{vocab, tinyHidden}, c.Tensors["model.embed_tokens.weight"].Shape)
	require.Equal(t, norm.data, read(t, c, "model.norm.weight"))
}

func TestGGUFThatShrinksLater(t *testing.T) {
	path := writeFile(t, t.TempDir(), "tiny.gguf", tinyGGUF("llama", typeQ4_0).bytes())
	c, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 3000))
	_, err = c.Tensors["model.layers.1.self_attn.q_proj.scales"].Read()
	requireError(t, err, "q_proj.scales", path, "damaged")
}

func FuzzGGUF(f *testing.F) {
	dir := f.TempDir() // the models of the other tests are too large to start from: see testdata
	f.Fuzz(func(t *testing.T, file []byte) {
		path := writeFile(t, dir, "fuzz.gguf", file)
		h, err := parseGGUF(bytes.NewReader(file), int64(len(file)), path)
		if err != nil {
			return
		}
		c, err := h.checkpoint()
		if err != nil {
			return
		}
		for name, tensor := range c.Tensors {
			if tensor.Size() > 32*int64(len(file)) {
				t.Fatalf("tensor %q is larger than the file: %+v", name, tensor)
			}
			if b, err := tensor.Read(); err != nil || int64(len(b)) != tensor.Size() {
				t.Fatalf("tensor %q: %d of %d bytes: %v", name, len(b), tensor.Size(), err)
			}
		}
	})
}
