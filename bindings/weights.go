package bindings

import (
	"runtime"
	"unsafe"
)

// Weights is a set of tensors, numbered from 0. The zero value stands for none.
type Weights struct {
	ctx    *Context
	handle int64
}

// A Weight describes a tensor to add.
type Weight struct {
	Name     string
	DType    DType // of the bytes
	Resident DType // what to keep: the same, or for floats a wider or narrower float
	Dims     []int
	Parts    []Part // in order they are the row-major little-endian bytes
}

// A Part is a contiguous run of a weight's bytes: Bytes bytes of File from Offset
// on, or what is made of the file as Layout says, or, where File is the zero File,
// the bytes in Data. With Random it is the
// only part of a weight that the library makes up, Bytes bytes that depend on
// Offset: floats in [-1/32, 1/32), integers of any bits.
type Part struct {
	Random bool
	File   File
	Layout FileLayout // of File
	Offset int64
	Bytes  int64
	Data   []byte
}

// FileLayout says what a file holds instead of the bytes themselves, which the
// library makes of it; the zero value: they are there as they are.
type FileLayout struct {
	Blocks int64 // BlocksQ40, BlocksQ41 or BlocksQ80 of GGUF, or BlocksNone
	Field  int64 // what of the blocks is wanted: FieldElements, FieldScales or FieldBiases

	// HeadRows is not 0 where the two halves of every so many rows are
	// interleaved in the file: its rows 2i and 2i+1 are rows i and HeadRows/2+i.
	// RowBytes is what a row takes there then.
	HeadRows, RowBytes int64
}

// WeightInfo describes a resident tensor.
type WeightInfo struct {
	Name  string
	DType DType
	Dims  []int
	Bytes int64
}

// NewWeights makes an empty set.
func (c *Context) NewWeights() (Weights, error) {
	if err := c.check(c.weightsCreate(c.handle, &c.out[0]), -1); err != nil {
		return Weights{}, err
	}
	return Weights{c, c.out[0]}, nil
}

// Destroy frees the set.
func (w Weights) Destroy() error { return w.ctx.check(w.ctx.weightsDestroy(w.handle), -1) }

// Pack says that programs will use a matrix: the indices of a weight, its scales
// and its biases, -1 for none, and its quantization as the attributes mode, bits
// and group of an op say it. It may take as long as reading them, and saves the
// first program from waiting for that.
func (w Weights) Pack(weight, scales, biases int, mode, bits, group int64) error {
	return w.ctx.check(w.ctx.weightsPack(w.handle, int64(weight), int64(scales), int64(biases), mode, bits, group), -1)
}

// Add adds a tensor and returns its index. When it returns, Data of the parts may
// change; their files may be closed, but must stay as they are until a program
// that uses the tensor is loaded.
func (w Weights) Add(weight Weight) (int, error) {
	var pins runtime.Pinner
	defer pins.Unpin()

	dims := make([]int64, len(weight.Dims))
	for i, d := range weight.Dims {
		dims[i] = int64(d)
	}
	parts := make([]rawPart, len(weight.Parts))
	for i, p := range weight.Parts {
		raw := rawPart{file: p.File.handle, offset: p.Offset, bytes: p.Bytes,
			blocks: p.Layout.Blocks, field: p.Layout.Field, headRows: p.Layout.HeadRows, rowBytes: p.Layout.RowBytes}
		raw.size = int64(unsafe.Sizeof(raw))
		if p.Random {
			raw.file = FileRandom
		} else if raw.file == 0 {
			raw.bytes = int64(len(p.Data))
			raw.data = pointer(p.Data)
			pins.Pin(raw.data)
		}
		parts[i] = raw
	}
	raw := &rawWeight{
		name:          unsafe.StringData(weight.Name),
		nameLength:    int64(len(weight.Name)),
		dtype:         int64(weight.DType),
		residentDtype: int64(weight.Resident),
		ndim:          int64(len(dims)),
		dims:          (*int64)(pointer(dims)),
		partCount:     int64(len(parts)),
		parts:         (*rawPart)(pointer(parts)),
	}
	raw.size = int64(unsafe.Sizeof(*raw))
	pins.Pin(raw.name)
	pins.Pin(raw.dims)
	pins.Pin(raw.parts)

	c := w.ctx
	if err := c.check(c.weightsAdd(w.handle, raw, &c.out[0]), -1); err != nil {
		return 0, err
	}
	return int(c.out[0]), nil
}

// Count returns how many tensors the set has.
func (w Weights) Count() (int, error) {
	err := w.ctx.check(w.ctx.weightsCount(w.handle, &w.ctx.out[0]), -1)
	return int(w.ctx.out[0]), err
}

// Info describes the tensor with an index.
func (w Weights) Info(index int) (WeightInfo, error) {
	c := w.ctx
	raw := &rawWeightInfo{}
	raw.size = int64(unsafe.Sizeof(*raw))
	dims := make([]int64, MaxDims)
	name, status := c.text(func(text *byte, capacity int64, length *int64) Status {
		return c.weightsInfo(w.handle, int64(index), raw, &dims[0], text, capacity, length)
	})
	if err := c.check(status, -1); err != nil {
		return WeightInfo{}, err
	}
	info := WeightInfo{Name: name, DType: DType(raw.dtype), Bytes: raw.bytes}
	for _, d := range dims[:min(max(raw.ndim, 0), MaxDims)] {
		info.Dims = append(info.Dims, int(d))
	}
	return info, nil
}
