package weights

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
)

func bytesTensor(t *testing.T, name string, shape []int, b ...byte) Tensor {
	path := writeFile(t, t.TempDir(), name, b)
	return Tensor{Name: name, DType: bindings.U8, Shape: shape, Parts: []Part{{Path: path, Size: int64(len(b))}}}
}

func TestConcat(t *testing.T) {
	a, b := bytesTensor(t, "a", []int{1, 2}, 1, 2), bytesTensor(t, "b", []int{2, 2}, 3, 4, 5, 6)
	j, err := Concat("ab", a, b)
	require.NoError(t, err)
	require.Equal(t, "ab", j.Name)
	require.Equal(t, []int{3, 2}, j.Shape)
	require.Equal(t, []int{1, 2}, a.Shape)
	got, err := j.Read()
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6}, got)
}

func TestStack(t *testing.T) {
	j, err := Stack("ab", bytesTensor(t, "a", []int{2}, 1, 2), bytesTensor(t, "b", []int{2}, 3, 4))
	require.NoError(t, err)
	require.Equal(t, []int{2, 2}, j.Shape)
	got, err := j.Read()
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2, 3, 4}, got)
}

func TestJoinMismatch(t *testing.T) {
	row := bytesTensor(t, "row", []int{1, 2}, 1, 2)
	other := row
	other.DType = bindings.I8
	scalar := bytesTensor(t, "s", nil, 1)
	for _, join := range []func(string, ...Tensor) (Tensor, error){Concat, Stack} {
		_, err := join("x")
		requireError(t, err, "x", "no tensors")
		_, err = join("x", row, other)
		requireError(t, err, "x", "i8", "row")
		_, err = join("x", row, bytesTensor(t, "wide", []int{1, 3}, 1, 2, 3))
		requireError(t, err, "x", "[1 3] of wide")
		_, err = join("x", row, scalar)
		requireError(t, err, "x", "of s")
	}
	_, err := Concat("x", scalar)
	requireError(t, err, "no axis")
	_, err = Stack("x", row, bytesTensor(t, "tall", []int{2, 2}, 1, 2, 3, 4))
	requireError(t, err, "of tall")
}
