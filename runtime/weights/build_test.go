package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeFile writes a file into dir and returns its path.
func writeFile(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, content, 0o644))
	return path
}

// safetensorsFile makes a file of a raw header and data.
func safetensorsFile(header string, data []byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

// goodSafetensors makes a file with U8 tensors of these contents.
func goodSafetensors(tensors map[string][]byte) []byte {
	header := map[string]any{"__metadata__": map[string]string{"format": "mlx"}}
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		b := tensors[name]
		header[name] = map[string]any{"dtype": "U8", "shape": []int{len(b)}, "data_offsets": []int{len(data), len(data) + len(b)}}
		data = append(data, b...)
	}
	raw, _ := json.Marshal(header)
	return safetensorsFile(string(raw), data)
}

// ggufFile is a GGUF file to be written. The pointers override what is true.
type ggufFile struct {
	magic   string
	version uint32
	align   int
	keys    []ggufKey
	tensors []*ggufData

	tensorCount, keyCount *uint64
}

type ggufKey struct {
	name  string
	value any // or rawValue
}

// rawValue is a metadata value as bytes, its type number included.
type rawValue []byte

type ggufData struct {
	name   string
	kind   uint32
	dims   []uint64 // as in the file: innermost first
	data   []byte
	offset *uint64
}

var le = binary.LittleEndian

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends the type number and a value.
func appendValue(b []byte, v any) []byte {
	fixed := func(kind uint32) []byte {
		out, err := binary.Append(le.AppendUint32(b, kind), le, v)
		if err != nil {
			panic(err)
		}
		return out
	}
	list := func(kind uint32, n int) []byte {
		b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, metaArray), kind), uint64(n))
		out, err := binary.Append(b, le, v)
		if err != nil {
			panic(err)
		}
		return out
	}
	switch v := v.(type) {
	case rawValue:
		return append(b, v...)
	case uint8:
		return fixed(0)
	case int8:
		return fixed(1)
	case uint16:
		return fixed(2)
	case int16:
		return fixed(3)
	case uint32:
		return fixed(4)
	case int32:
		return fixed(5)
	case float32:
		return fixed(6)
	case bool:
		return fixed(metaBool)
	case string:
		return appendString(le.AppendUint32(b, metaString), v)
	case uint64:
		return fixed(10)
	case int64:
		return fixed(11)
	case float64:
		return fixed(12)
	case []uint8:
		return list(0, len(v))
	case []int8:
		return list(1, len(v))
	case []uint16:
		return list(2, len(v))
	case []int16:
		return list(3, len(v))
	case []uint32:
		return list(4, len(v))
	case []int32:
		return list(5, len(v))
	case []float32:
		return list(6, len(v))
	case []bool:
		return list(metaBool, len(v))
	case []uint64:
		return list(10, len(v))
	case []int64:
		return list(11, len(v))
	case []float64:
		return list(12, len(v))
	case []string:
		b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, metaArray), metaString), uint64(len(v)))
		for _, s := range v {
			b = appendString(b, s)
		}
		return b
	}
	panic("no such value")
}

// bytes returns the file.
func (f *ggufFile) bytes() []byte {
	count := func(n int, override *uint64) uint64 {
		if override != nil {
			return *override
		}
		return uint64(n)
	}
	b := le.AppendUint32([]byte(f.magic), f.version)
	b = le.AppendUint64(b, count(len(f.tensors), f.tensorCount))
	b = le.AppendUint64(b, count(len(f.keys), f.keyCount))
	for _, k := range f.keys {
		b = appendValue(appendString(b, k.name), k.value)
	}
	pad := func(b []byte) []byte { return append(b, make([]byte, -len(b)&(f.align-1))...) }
	var data []byte
	for _, t := range f.tensors {
		data = pad(data)
		offset := uint64(len(data))
		if t.offset != nil {
			offset = *t.offset
		}
		b = le.AppendUint32(appendString(b, t.name), uint32(len(t.dims)))
		for _, d := range t.dims {
			b = le.AppendUint64(b, d)
		}
		b = le.AppendUint64(le.AppendUint32(b, t.kind), offset)
		data = append(data, t.data...)
	}
	return append(pad(b), data...)
}

// set gives a metadata key a value, nil for none.
func (f *ggufFile) set(name string, value any) {
	f.keys = slices.DeleteFunc(f.keys, func(k ggufKey) bool { return k.name == name })
	if value != nil {
		f.keys = append(f.keys, ggufKey{name, value})
	}
}

// get returns the tensor of a name.
func (f *ggufFile) get(name string) *ggufData {
	for _, t := range f.tensors {
		if t.name == name {
			return t
		}
	}
	panic("no tensor " + name)
}

// remove takes tensors whose name starts with prefix out.
func (f *ggufFile) remove(prefix string) {
	f.tensors = slices.DeleteFunc(f.tensors, func(t *ggufData) bool { return strings.HasPrefix(t.name, prefix) })
}

// add appends a tensor with random contents.
func (f *ggufFile) add(rng *rand.Rand, name string, kind uint32, dims ...uint64) {
	f.tensors = append(f.tensors, &ggufData{name: name, kind: kind, dims: dims, data: randomBlocks(rng, kind, dims)})
}

// randomBlocks makes blocks whose scales (and minima) are any finite numbers up
// to 2 in size, also those below the normal range.
func randomBlocks(rng *rand.Rand, kind uint32, dims []uint64) []byte {
	ty := ggufTypes[kind]
	n := ty.bytes
	for _, d := range dims {
		n *= int64(d)
	}
	b := make([]byte, n/ty.block)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	half := func(at int) { le.PutUint16(b[at:], uint16(rng.Uint32N(2))<<15|uint16(rng.Uint32N(0x4000))) }
	if ty.dtype == 0 {
		for at := 0; at < len(b); at += int(ty.bytes) {
			half(at)
			if kind == typeQ4_1 {
				half(at + 2)
			}
		}
	}
	return b
}

// The sizes of the models that tinyGGUF makes.
const (
	tinyLayers = 2
	tinyHidden = 64
	tinyHeads  = 4
	tinyKV     = 2
	tinyHead   = 16
	tinyFF     = 96
	tinyVocab  = 8
)

const (
	typeF32  = 0
	typeF16  = 1
	typeBF16 = 30
)

// tinyGGUF makes a whole model with linear layers of the given type.
func tinyGGUF(arch string, kind uint32) *ggufFile {
	rng := rand.New(rand.NewPCG(1, uint64(kind)))
	f := &ggufFile{magic: ggufMagic, version: 3, align: 32}
	f.keys = []ggufKey{
		{"general.architecture", arch},
		{arch + ".block_count", uint32(tinyLayers)},
		{arch + ".context_length", uint32(512)},
		{arch + ".embedding_length", uint32(tinyHidden)},
		{arch + ".feed_forward_length", uint32(tinyFF)},
		{arch + ".attention.head_count", uint32(tinyHeads)},
		{arch + ".attention.head_count_kv", uint32(tinyKV)},
		{arch + ".attention.layer_norm_rms_epsilon", float32(1e-6)},
		{arch + ".rope.freq_base", float32(1e6)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", "smollm"},
		{"tokenizer.ggml.tokens", []string{"a", "b", "c", "d", "ab", "cd", "<s>", "</s>"}},
		{"tokenizer.ggml.token_type", []int32{1, 1, 1, 1, 1, 1, 3, 3}},
		{"tokenizer.ggml.merges", []string{"a b", "c d"}},
		{"tokenizer.ggml.bos_token_id", uint32(6)},
		{"tokenizer.ggml.eos_token_id", uint32(7)},
		{"tokenizer.chat_template", "{{ messages }}"},
	}
	f.add(rng, "token_embd.weight", typeQ8_0, tinyHidden, tinyVocab)
	f.add(rng, "output_norm.weight", typeF32, tinyHidden)
	for l := range tinyLayers {
		blk := "blk." + string(rune('0'+l)) + "."
		f.add(rng, blk+"attn_norm.weight", typeF32, tinyHidden)
		f.add(rng, blk+"ffn_norm.weight", typeF32, tinyHidden)
		f.add(rng, blk+"attn_q.weight", kind, tinyHidden, tinyHeads*tinyHead)
		f.add(rng, blk+"attn_k.weight", kind, tinyHidden, tinyKV*tinyHead)
		f.add(rng, blk+"attn_v.weight", kind, tinyHidden, tinyKV*tinyHead)
		f.add(rng, blk+"attn_output.weight", kind, tinyHeads*tinyHead, tinyHidden)
		f.add(rng, blk+"ffn_gate.weight", kind, tinyHidden, tinyFF)
		f.add(rng, blk+"ffn_up.weight", kind, tinyHidden, tinyFF)
		f.add(rng, blk+"ffn_down.weight", kind, tinyFF, tinyHidden)
	}
	return f
}

// openBytes writes a GGUF file and opens it.
func openBytes(t testing.TB, b []byte) (*Checkpoint, error) {
	t.Helper()
	return Open(writeFile(t, t.TempDir(), "tiny.gguf", b))
}

// mustOpen opens a GGUF file that is right.
func mustOpen(t testing.TB, f *ggufFile) *Checkpoint {
	t.Helper()
	c, err := openBytes(t, f.bytes())
	require.NoError(t, err)
	return c
}

// config decodes the config of a checkpoint.
func config(t testing.TB, c *Checkpoint) map[string]any {
	t.Helper()
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(c.Config))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&m))
	return m
}

// read returns the bytes of a tensor that has to be there, of its size.
func read(t testing.TB, c *Checkpoint, name string) []byte {
	t.Helper()
	require.Contains(t, c.Tensors, name)
	b, err := c.Tensors[name].Read()
	require.NoError(t, err)
	require.EqualValues(t, c.Tensors[name].Size(), len(b))
	return b
}
