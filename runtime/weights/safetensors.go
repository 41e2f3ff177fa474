package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"mlxcel/bindings"
)

// maxHeader is the largest JSON header that the safetensors format allows.
const maxHeader = 100_000_000

// safetensorsTypes maps the type names of the format. The 8-bit floats have no
// DType of their own: their bytes are handed on as U8.
var safetensorsTypes = map[string]bindings.DType{
	"BOOL": bindings.Bool,
	"U8":   bindings.U8, "I8": bindings.I8,
	"U16": bindings.U16, "I16": bindings.I16,
	"U32": bindings.U32, "I32": bindings.I32,
	"U64": bindings.U64, "I64": bindings.I64,
	"F16": bindings.F16, "BF16": bindings.BF16, "F32": bindings.F32, "F64": bindings.F64,
	"F8_E4M3": bindings.U8, "F8_E5M2": bindings.U8, "F8_E8M0": bindings.U8,
}

// readSafetensors reads the header of a safetensors file.
func readSafetensors(path string) (map[string]Tensor, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, fmt.Errorf("the weights %s cannot be read: %w", path, err)
	}
	defer f.Close()
	return parseSafetensors(f, size, path)
}

// safetensorsEntry is what a header says of one tensor.
type safetensorsEntry struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"` // begin and end, from the end of the header on
}

// parseSafetensors reads the header of a safetensors file of size bytes: the
// header's length (8 bytes), the header, then the tensors' bytes. The path is
// for the parts and for errors.
func parseSafetensors(r io.ReaderAt, size int64, path string) (map[string]Tensor, error) {
	header, err := safetensorsHeader(r, size, path)
	if err != nil {
		return nil, err
	}
	dataStart := 8 + int64(len(header))

	dec := json.NewDecoder(bytes.NewReader(header))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, damaged(path, "its header is no JSON object")
	}
	tensors := map[string]Tensor{}
	var spans []span
	for dec.More() {
		// The keys are read one by one, since a map would hide duplicates.
		key, err := dec.Token()
		if err != nil {
			return nil, damaged(path, "its header is no JSON (%v)", err)
		}
		name := key.(string) // the decoder has checked that keys are strings
		if name == "__metadata__" {
			var skip json.RawMessage
			if err := dec.Decode(&skip); err != nil {
				return nil, damaged(path, "its header is no JSON (%v)", err)
			}
			continue
		}
		var e safetensorsEntry
		if err := dec.Decode(&e); err != nil {
			return nil, damaged(path, "the header's entry for tensor %q cannot be read (%v)", name, err)
		}
		if _, twice := tensors[name]; twice {
			return nil, damaged(path, "its header names tensor %q twice", name)
		}
		t, err := e.tensor(name, path, dataStart, size)
		if err != nil {
			return nil, err
		}
		tensors[name] = t
		spans = append(spans, span{name, e.Offsets[0], e.Offsets[1]})
	}
	if _, err := dec.Token(); err != nil {
		return nil, damaged(path, "its header is no JSON (%v)", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, damaged(path, "something follows the JSON object in its header")
	}
	if a, b, found := overlapping(spans); found {
		return nil, damaged(path, "tensors %q and %q overlap", a, b)
	}
	return tensors, nil
}

// safetensorsHeader returns the JSON header, of a length that the file bears out.
func safetensorsHeader(r io.ReaderAt, size int64, path string) ([]byte, error) {
	if size < 8 {
		return nil, damaged(path, "its %d bytes are too few for a safetensors file", size)
	}
	start := make([]byte, min(size, int64(len(lfsPointer))))
	if _, err := r.ReadAt(start, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	if err := checkPointer(path, start); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(start)
	switch {
	case n > maxHeader:
		return nil, damaged(path, "it claims a header of %d bytes, more than the %d that a safetensors file may have", n, maxHeader)
	case int64(n) > size-8:
		return nil, damaged(path, "it claims a header of %d bytes, and has %d bytes in all", n, size)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 8); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	return header, nil
}

// tensor checks an entry against the file and returns the tensor it describes.
func (e safetensorsEntry) tensor(name, path string, dataStart, fileSize int64) (Tensor, error) {
	dtype, ok := safetensorsTypes[e.DType]
	if !ok {
		return Tensor{}, fmt.Errorf("%s: tensor %q has type %q, which mlxcel does not read: take a version of the model in F32, F16, BF16 or an MLX quantization", path, name, e.DType)
	}
	want, ok := product(int64(dtype.Size()), e.Shape)
	if !ok {
		return Tensor{}, damaged(path, "tensor %q has the impossible shape %v", name, e.Shape)
	}
	if len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0] {
		return Tensor{}, damaged(path, "tensor %q has the impossible data_offsets %v", name, e.Offsets)
	}
	begin, end := e.Offsets[0], e.Offsets[1]
	if end-begin != want {
		return Tensor{}, damaged(path, "tensor %q of type %s and shape %v needs %d bytes, its data_offsets give it %d", name, e.DType, e.Shape, want, end-begin)
	}
	if end > fileSize-dataStart {
		return Tensor{}, damaged(path, "it is cut short: tensor %q ends %d bytes behind the header, the file %d", name, end, fileSize-dataStart)
	}
	return Tensor{
		Name:  name,
		DType: dtype,
		Shape: ints(e.Shape),
		Parts: []Part{{Path: path, Offset: dataStart + begin, Size: want}},
	}, nil
}
