package weights

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"

	"mlxcel/bindings"
)

const ggufMagic = "GGUF"

// Bounds of what a header may hold. They are far above what real files have,
// and keep lying counts in a large file from filling the memory.
const (
	maxGGUFTensors = 1 << 20
	maxGGUFKeys    = 1 << 16
	maxGGUFName    = 1 << 10  // bytes
	maxGGUFString  = 64 << 20 // bytes
	maxGGUFArray   = 1 << 24  // elements
	maxGGUFAlign   = 1 << 20  // bytes
)

// ggufType is an element type of GGUF: elements are stored in blocks.
type ggufType struct {
	name  string
	block int64          // elements in a block; 0: mlxcel does not read the type
	bytes int64          // bytes of a block
	dtype bindings.DType // 0: the type is quantized
}

// The quantized types that are read, by number.
const (
	typeQ4_0 = 2
	typeQ4_1 = 3
	typeQ8_0 = 8
)

var ggufTypes = map[uint32]ggufType{
	0:        {"F32", 1, 4, bindings.F32},
	1:        {"F16", 1, 2, bindings.F16},
	30:       {"BF16", 1, 2, bindings.BF16},
	typeQ4_0: {"Q4_0", 32, 18, 0},
	typeQ4_1: {"Q4_1", 32, 20, 0},
	typeQ8_0: {"Q8_0", 32, 34, 0},

	6: {name: "Q5_0"}, 7: {name: "Q5_1"}, 9: {name: "Q8_1"},
	10: {name: "Q2_K"}, 11: {name: "Q3_K"}, 12: {name: "Q4_K"}, 13: {name: "Q5_K"}, 14: {name: "Q6_K"}, 15: {name: "Q8_K"},
	16: {name: "IQ2_XXS"}, 17: {name: "IQ2_XS"}, 18: {name: "IQ3_XXS"}, 19: {name: "IQ1_S"}, 20: {name: "IQ4_NL"},
	21: {name: "IQ3_S"}, 22: {name: "IQ2_S"}, 23: {name: "IQ4_XS"}, 29: {name: "IQ1_M"},
	24: {name: "I8"}, 25: {name: "I16"}, 26: {name: "I32"}, 27: {name: "I64"}, 28: {name: "F64"},
	34: {name: "TQ1_0"}, 35: {name: "TQ2_0"}, 39: {name: "MXFP4"},
}

// ggufTensor is what a GGUF header says of one tensor.
type ggufTensor struct {
	name   string
	kind   uint32
	dims   []int64 // outermost first, as in Tensor.Shape
	offset int64   // from the start of the data section; after place, of the file
	size   int64   // bytes, set by place
}

// ggufHeader is the contents of a GGUF file up to the tensors' bytes.
type ggufHeader struct {
	path    string
	version int
	meta    map[string]any
	tensors []ggufTensor
	end     int64 // where the header ends
	size    int64 // of the file
}

// parseGGUF reads the header of a GGUF file of size bytes. The path is for
// errors.
func parseGGUF(r io.Reader, size int64, path string) (*ggufHeader, error) {
	in := &ggufReader{path: path, r: bufio.NewReaderSize(r, 1<<16), left: size}
	h := &ggufHeader{path: path, size: size, meta: map[string]any{}}

	start, _ := in.r.Peek(len(lfsPointer)) // whatever is there
	if err := checkPointer(path, start); err != nil {
		return nil, err
	}
	if magic := in.bytes(uint64(len(ggufMagic))); string(magic) != ggufMagic {
		return nil, fmt.Errorf("%s is no GGUF file: give a .gguf file, or an MLX model folder", path)
	}
	version := number[uint32](in)
	switch {
	case in.err != nil:
		return nil, in.err
	case version == bits.ReverseBytes32(2), version == bits.ReverseBytes32(3):
		return nil, fmt.Errorf("%s is a big-endian GGUF file, which mlxcel does not read: take the little-endian one", path)
	case version != 2 && version != 3:
		return nil, fmt.Errorf("%s has GGUF version %d, and mlxcel reads 2 and 3: convert the model again, or take the MLX version", path, version)
	}
	h.version = int(version)

	tensors, keys := number[uint64](in), number[uint64](in)
	if in.err == nil && (tensors > maxGGUFTensors || keys > maxGGUFKeys) {
		return nil, damaged(path, "it claims %d tensors and %d metadata keys", tensors, keys)
	}
	for range keys {
		key := in.string(maxGGUFName)
		value := in.value(number[uint32](in), key)
		if in.err != nil {
			return nil, in.err
		}
		if _, twice := h.meta[key]; twice {
			return nil, damaged(path, "it has the metadata key %q twice", key)
		}
		h.meta[key] = value
	}
	names := map[string]bool{}
	for range tensors {
		t := in.tensor()
		if in.err != nil {
			return nil, in.err
		}
		if names[t.name] {
			return nil, damaged(path, "it has tensor %q twice", t.name)
		}
		names[t.name] = true
		h.tensors = append(h.tensors, t)
	}
	h.end = size - in.left
	return h, in.err
}

// place works out where the tensors lie in the file, and checks that they do.
func (h *ggufHeader) place() error {
	align := int64(32)
	if v, ok := h.meta["general.alignment"]; ok {
		n, ok := v.(uint32)
		if !ok || n == 0 || n > maxGGUFAlign || bits.OnesCount32(n) != 1 {
			return damaged(h.path, "its alignment (general.alignment) is %v, and a power of two was expected", v)
		}
		align = int64(n)
	}
	dataStart := (h.end + align - 1) / align * align

	var spans []span
	for i := range h.tensors {
		t := &h.tensors[i]
		kind := ggufTypes[t.kind]
		if kind.block == 0 {
			return h.unread(t)
		}
		blocked := slices.Clone(t.dims)
		last := &blocked[len(blocked)-1]
		if *last%kind.block != 0 {
			return damaged(h.path, "the rows of tensor %q have %d elements, which are no whole blocks of %s", t.name, *last, kind.name)
		}
		*last /= kind.block
		size, ok := product(kind.bytes, blocked)
		switch {
		case !ok || size == 0:
			return damaged(h.path, "tensor %q has the impossible shape %v", t.name, t.dims)
		case t.offset%align != 0:
			return damaged(h.path, "tensor %q starts at %d, no multiple of the alignment %d", t.name, t.offset, align)
		case dataStart > h.size || t.offset > h.size-dataStart || size > h.size-dataStart-t.offset:
			return damaged(h.path, "it is cut short: tensor %q needs %d bytes from byte %d on, the file has %d bytes", t.name, size, dataStart+t.offset, h.size)
		}
		t.size = size
		t.offset += dataStart
		spans = append(spans, span{t.name, t.offset, t.offset + size})
	}
	if a, b, found := overlapping(spans); found {
		return damaged(h.path, "tensors %q and %q overlap", a, b)
	}
	return nil
}

// unread is the error for a tensor of a type that mlxcel does not read.
func (h *ggufHeader) unread(t *ggufTensor) error {
	name := ggufTypes[t.kind].name
	if name == "" {
		name = fmt.Sprintf("number %d", t.kind)
	}
	return fmt.Errorf("%s: tensor %s has type %s; mlxcel reads F32, F16, BF16, Q4_0, Q4_1 and Q8_0: convert it, or take the MLX version of the model", h.path, t.name, name)
}

// ggufReader reads the values of a header one after the other. After the first
// error, which it keeps, it returns zero values.
type ggufReader struct {
	path string
	r    *bufio.Reader
	left int64 // bytes of the file that were not read yet
	err  error
}

// fail keeps the first error.
func (r *ggufReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = damaged(r.path, format, args...)
	}
}

// fits reports whether n elements of at least size bytes can follow.
func (r *ggufReader) fits(n uint64, size int64) bool {
	if r.err == nil && n > uint64(r.left/size) {
		r.fail("its header claims %d more bytes or elements, and the file has %d bytes left", n, r.left)
	}
	return r.err == nil
}

// bytes reads the next n bytes, nil after an error. They are valid until the
// next read.
func (r *ggufReader) bytes(n uint64) []byte {
	if !r.fits(n, 1) {
		return nil
	}
	var b []byte
	var err error
	if n <= uint64(r.r.Size()) {
		if b, err = r.r.Peek(int(n)); err == nil {
			_, err = r.r.Discard(int(n))
		}
	} else {
		b = make([]byte, n)
		_, err = io.ReadFull(r.r, b)
	}
	if err != nil {
		r.err = fmt.Errorf("%s cannot be read: %w", r.path, err)
		return nil
	}
	r.left -= int64(n)
	return b
}

// string reads a length, at most limit, and as many bytes.
func (r *ggufReader) string(limit uint64) string {
	n := r.length()
	if n > limit {
		r.fail("its header claims a text of %d bytes", n)
	}
	return string(r.bytes(n))
}

// length reads the length of a text.
func (r *ggufReader) length() uint64 {
	b := r.bytes(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// numeric are the Go types of the fixed-size metadata values.
type numeric interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | float32 | uint64 | int64 | float64
}

// number reads one value of fixed size.
func number[T numeric](r *ggufReader) T {
	var v T
	if b := r.bytes(uint64(binary.Size(v))); b != nil {
		binary.Decode(b, binary.LittleEndian, &v) // fails on too few bytes only
	}
	return v
}

// numbers reads n values of fixed size.
func numbers[T numeric](r *ggufReader, n uint64) []T {
	var v T
	size := binary.Size(v)
	if !r.fits(n, int64(size)) {
		return nil
	}
	out := make([]T, n)
	if b := r.bytes(n * uint64(size)); b != nil {
		binary.Decode(b, binary.LittleEndian, out)
	}
	return out
}

// The type numbers of metadata values that are not plain numbers.
const (
	metaBool   = 7
	metaString = 8
	metaArray  = 9
)

// value reads a metadata value: a number, bool or string, or a slice of these.
func (r *ggufReader) value(kind uint32, key string) any {
	switch kind {
	case 0:
		return number[uint8](r)
	case 1:
		return number[int8](r)
	case 2:
		return number[uint16](r)
	case 3:
		return number[int16](r)
	case 4:
		return number[uint32](r)
	case 5:
		return number[int32](r)
	case 6:
		return number[float32](r)
	case metaBool:
		return number[uint8](r) != 0
	case metaString:
		return r.string(maxGGUFString)
	case metaArray:
		return r.array(key)
	case 10:
		return number[uint64](r)
	case 11:
		return number[int64](r)
	case 12:
		return number[float64](r)
	}
	r.fail("the metadata key %q has a value of the unknown type %d", key, kind)
	return nil
}

// array reads an array of metadata values, all of one type.
func (r *ggufReader) array(key string) any {
	kind, n := number[uint32](r), number[uint64](r)
	if n > maxGGUFArray {
		r.fail("the metadata key %q claims an array of %d elements", key, n)
	}
	if r.err != nil {
		return nil
	}
	switch kind {
	case 0:
		return numbers[uint8](r, n)
	case 1:
		return numbers[int8](r, n)
	case 2:
		return numbers[uint16](r, n)
	case 3:
		return numbers[int16](r, n)
	case 4:
		return numbers[uint32](r, n)
	case 5:
		return numbers[int32](r, n)
	case 6:
		return numbers[float32](r, n)
	case metaBool:
		bools := make([]bool, 0)
		for _, b := range numbers[uint8](r, n) {
			bools = append(bools, b != 0)
		}
		return bools
	case metaString:
		if !r.fits(n, 8) { // each has a length of 8 bytes
			return nil
		}
		texts := make([]string, n)
		for i := 0; i < len(texts) && r.err == nil; i++ {
			texts[i] = r.string(maxGGUFString)
		}
		return texts
	case 10:
		return numbers[uint64](r, n)
	case 11:
		return numbers[int64](r, n)
	case 12:
		return numbers[float64](r, n)
	case metaArray:
		r.fail("the metadata key %q holds an array of arrays", key)
	default:
		r.fail("the metadata key %q holds an array of the unknown type %d", key, kind)
	}
	return nil
}

// tensor reads the description of one tensor.
func (r *ggufReader) tensor() ggufTensor {
	t := ggufTensor{name: r.string(maxGGUFName)}
	n := number[uint32](r)
	if r.err == nil && (n == 0 || n > 4) {
		r.fail("tensor %q has %d dimensions, and 1 to 4 were expected", t.name, n)
	}
	if r.err != nil {
		return t
	}
	for _, d := range numbers[uint64](r, uint64(n)) {
		if d == 0 || d > math.MaxInt64 {
			r.fail("tensor %q has a dimension of %d", t.name, d)
		}
		t.dims = append(t.dims, int64(d))
	}
	slices.Reverse(t.dims)
	t.kind = number[uint32](r)
	offset := number[uint64](r)
	if offset > math.MaxInt64/2 {
		r.fail("tensor %q starts at byte %d", t.name, offset)
	}
	t.offset = int64(offset)
	return t
}
