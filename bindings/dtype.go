package bindings

import "fmt"

// DType is the element type of a tensor; the numbers are those of the C ABI
// (MLXSHIM_DTYPE_… in mlxshim.h).
type DType int64

// The element types that weights, inputs and outputs may have.
const (
	Bool DType = iota + 1
	U8
	I8
	U16
	I16
	U32
	I32
	U64
	I64
	F16
	BF16
	F32
	F64
)

var dtypes = [...]struct {
	name string
	size int
}{
	Bool: {"bool", 1}, U8: {"u8", 1}, I8: {"i8", 1}, U16: {"u16", 2}, I16: {"i16", 2},
	U32: {"u32", 4}, I32: {"i32", 4}, U64: {"u64", 8}, I64: {"i64", 8},
	F16: {"f16", 2}, BF16: {"bf16", 2}, F32: {"f32", 4}, F64: {"f64", 8},
}

// Size returns the bytes of one element, 0 for an unknown type.
func (d DType) Size() int {
	if d <= 0 || int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].size
}

// IsFloat reports whether d is a floating-point type.
func (d DType) IsFloat() bool { return d >= F16 && d <= F64 }

func (d DType) String() string {
	if d.Size() == 0 {
		return fmt.Sprintf("dtype(%d)", int64(d))
	}
	return dtypes[d].name
}
