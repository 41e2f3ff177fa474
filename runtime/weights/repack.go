package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"mlxcel/bindings"
	"mlxcel/internal/held"
)

// MLX's affine quantization has value = scale*q + bias for each group of
// elements. The blocks of GGUF say the same in other words:
//
//	Q4_0  d*(q-8)  4 bits without sign   scale d, bias -8*d
//	Q4_1  d*q + m  4 bits without sign   scale d, bias m
//	Q8_0  d*q      8 bits with sign      scale d, bias -128*d, q raised by 128
//
// A factor of 8 or 128 changes the exponent only, so that nothing is rounded.

// groupSize is the elements of a block, in GGUF and as MLX's group_size.
const groupSize = 32

// quantBits is the bits of an element.
func quantBits(kind uint32) int {
	if kind == typeQ8_0 {
		return 8
	}
	return 4
}

// biasShift is k where the bias is -2^k times the scale, 0 if it is stored.
func biasShift(kind uint32) int {
	switch kind {
	case typeQ4_0:
		return 3
	case typeQ8_0:
		return 7
	}
	return 0
}

// convert fills dst with the part, which the file holds in blocks, or with interleaved heads. The libraries do the same
// faster; this is for other readers, and says what is meant.
func (p Part) convert(dst []byte, dtype bindings.DType) error {
	row, made, convert := int64(1), int64(1), keep
	if p.Layout.Blocks != bindings.BlocksNone {
		kind := blockKind(p.Layout.Blocks)
		row, made, convert = ggufTypes[kind].bytes, groupSize*int64(quantBits(kind))/8, packer(kind)
		switch p.Layout.Field {
		case bindings.FieldScales:
			made, convert = int64(dtype.Size()), scaler(kind, dtype == bindings.F32)
		case bindings.FieldBiases:
			made, convert = int64(dtype.Size()), biaser(kind, dtype == bindings.F32)
		}
	}
	src := make([]byte, p.Size/made*row)
	if err := readRange(p.Path, p.Offset, src); err != nil {
		return err
	}
	if p.Layout.HeadRows > 0 {
		src = inOrder(src, p.Layout.RowBytes, p.Layout.HeadRows/2)
	}
	convert(dst, src)
	return nil
}

// inOrder copies whole heads of 2*half rows and undoes their interleaving.
func inOrder(src []byte, rowBytes, half int64) []byte {
	out := make([]byte, 0, len(src))
	for headBytes := 2 * half * rowBytes; len(src) > 0; src = src[headBytes:] {
		for odd := range int64(2) {
			for i := range half {
				at := (2*i + odd) * rowBytes
				out = append(out, src[at:at+rowBytes]...)
			}
		}
	}
	return out
}

// keep converts nothing.
func keep(dst, src []byte) { copy(dst, src) }

// quantized returns X.weight, X.scales and X.biases of a module X whose weight
// is a quantized GGUF tensor. Scales and biases are F16, or F32 if wide.
func (t ggufTensor) quantized(module string, whole Part, wide bool) []Tensor {
	last := len(t.dims) - 1
	shape := func(n int64) []int {
		s := ints(t.dims)
		s[last] = int(n)
		return s
	}
	scaleType := bindings.F16
	if wide {
		scaleType = bindings.F32
	}
	tensor := func(name string, dtype bindings.DType, width, field int64) Tensor {
		out := Tensor{Name: module + name, DType: dtype, Shape: shape(width)}
		p := whole
		p.Layout.Blocks, p.Layout.Field, p.Size = blocksOf(t.kind), field, out.Size()
		out.Parts = []Part{p}
		return out
	}
	cols := t.dims[last]
	return []Tensor{
		tensor(".weight", bindings.U32, cols*int64(quantBits(t.kind))/32, bindings.FieldElements),
		tensor(".scales", scaleType, cols/groupSize, bindings.FieldScales),
		tensor(".biases", scaleType, cols/groupSize, bindings.FieldBiases),
	}
}

// blocksOf is the library's number of a kind of blocks, and blockKind the kind of a number.
func blocksOf(kind uint32) int64 {
	switch kind {
	case typeQ4_0:
		return bindings.BlocksQ40
	case typeQ4_1:
		return bindings.BlocksQ41
	default:
		return bindings.BlocksQ80
	}
}

func blockKind(blocks int64) uint32 {
	switch blocks {
	case bindings.BlocksQ40:
		return typeQ4_0
	case bindings.BlocksQ41:
		return typeQ4_1
	default:
		return typeQ8_0
	}
}

// packer converts blocks to MLX's packed elements: lowest bits first.
func packer(kind uint32) func(dst, src []byte) {
	switch kind {
	case typeQ4_0:
		return func(dst, src []byte) { packNibbles(dst, src, 18) }
	case typeQ4_1:
		return func(dst, src []byte) { packNibbles(dst, src, 20) }
	default:
		return packBytes
	}
}

// packBytes packs the elements of Q8_0 blocks.
func packBytes(dst, src []byte) {
	for i := range len(src) / 34 {
		q, out := src[34*i+2:34*i+34], dst[32*i:32*i+32]
		for j := 0; j < 32; j += 8 { // flipping the top bit raises each byte by 128
			binary.LittleEndian.PutUint64(out[j:], binary.LittleEndian.Uint64(q[j:])^0x8080808080808080)
		}
	}
}

// packNibbles packs the elements of Q4_0 or Q4_1 blocks, which have this many
// bytes. The last 16 bytes of a block hold the elements 0 to 15 in their low
// nibbles, and 16 to 31 in the high ones.
func packNibbles(dst, src []byte, blockBytes int) {
	for i := range len(src) / blockBytes {
		end := (i + 1) * blockBytes
		q, out := src[end-16:end], dst[16*i:16*i+16]
		a, b := binary.LittleEndian.Uint64(q), binary.LittleEndian.Uint64(q[8:])
		binary.LittleEndian.PutUint64(out, pack8(a)|pack8(b)<<32)
		binary.LittleEndian.PutUint64(out[8:], pack8(a>>4)|pack8(b>>4)<<32)
	}
}

// pack8 puts the low nibbles of eight bytes side by side in 32 bits.
func pack8(x uint64) uint64 {
	x &= 0x0f0f0f0f0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return (x | x>>16) & 0x00000000ffffffff
}

// scaler collects the scales of blocks.
func scaler(kind uint32, wide bool) func(dst, src []byte) {
	return perBlock(kind, wide, func(block []byte) uint16 { return binary.LittleEndian.Uint16(block) }, 1)
}

// biaser collects the biases of blocks.
func biaser(kind uint32, wide bool) func(dst, src []byte) {
	shift := biasShift(kind)
	switch {
	case shift == 0: // stored behind the scale
		return perBlock(kind, wide, func(block []byte) uint16 { return binary.LittleEndian.Uint16(block[2:]) }, 1)
	case wide:
		return perBlock(kind, wide, func(block []byte) uint16 { return binary.LittleEndian.Uint16(block) }, -float32(int(1)<<shift))
	default:
		return perBlock(kind, wide, func(block []byte) uint16 {
			return shiftHalf(binary.LittleEndian.Uint16(block), shift) ^ 0x8000
		}, 1)
	}
}

// perBlock writes one number a block: the half that get returns or, if wide,
// factor times it in F32.
func perBlock(kind uint32, wide bool, get func(block []byte) uint16, factor float32) func(dst, src []byte) {
	bytes := int(ggufTypes[kind].bytes)
	return func(dst, src []byte) {
		for ; len(src) >= bytes; src = src[bytes:] {
			h := get(src)
			if wide {
				binary.LittleEndian.PutUint32(dst, math.Float32bits(factor*halfToFloat(h)))
				dst = dst[4:]
			} else {
				binary.LittleEndian.PutUint16(dst, h)
				dst = dst[2:]
			}
		}
	}
}

// shiftHalf returns 2^k times an F16 number that is small enough for it.
func shiftHalf(h uint16, k int) uint16 {
	sign, exp, frac := h&0x8000, int(h>>10&31), h&0x3ff
	switch exp {
	case 31: // infinite, or no number
		return h
	case 0: // below the normal range: shift until it is in it
		for ; k > 0 && frac < 0x400; k-- {
			frac <<= 1
		}
		if frac < 0x400 {
			return sign | frac
		}
		exp, frac = 1, frac&0x3ff
	}
	return sign | uint16(exp+k)<<10 | frac
}

// halfToFloat widens an F16 number.
func halfToFloat(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&0x3ff)
	switch exp {
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case 0:
		f := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// wideTensors returns, by index, the tensors whose biases exceed F16. No
// sensible model has any, but whoever reads blindly computes with infinities.
// It reads all Q4_0 and Q8_0 blocks once.
func wideTensors(path string, tensors []ggufTensor) ([]bool, error) {
	wide := make([]bool, len(tensors))
	errs := make([]error, len(tensors))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 8) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(tensors) {
					return
				}
				if biasShift(tensors[i].kind) > 0 {
					wide[i], errs[i] = tensors[i].exceedsHalf(path)
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return wide, nil
}

// exceedsHalf reports whether a bias of the tensor is too large for an F16.
func (t ggufTensor) exceedsHalf(path string) (bool, error) {
	f, err := held.Open(path)
	if err != nil {
		return false, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	defer f.Close()
	bytes := ggufTypes[t.kind].bytes
	limit := uint16(31-biasShift(t.kind)) << 10 // from here on the exponent overflows
	buf := make([]byte, min(t.size, (256<<10)/bytes*bytes))
	for done := int64(0); done < t.size; done += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), t.size-done)]
		if err := readAt(f, t.offset+done, buf); err != nil {
			return false, err
		}
		for b := buf; len(b) > 0; b = b[bytes:] {
			if h := binary.LittleEndian.Uint16(b) & 0x7fff; h >= limit && h < 0x7c00 {
				return true, nil
			}
		}
	}
	return false, nil
}
