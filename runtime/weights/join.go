package weights

import (
	"errors"
	"fmt"
	"slices"
)

// Concat joins tensors along their first axis, without copying: q, k and v
// projections to one, for instance. The tensors have the same type and differ
// in no other axis than the first.
func Concat(name string, ts ...Tensor) (Tensor, error) {
	if len(ts) == 0 {
		return Tensor{}, fmt.Errorf("%s: %w", name, errNothing)
	}
	if len(ts[0].Shape) == 0 {
		return Tensor{}, fmt.Errorf("%s: %s has no axis to join along", name, ts[0].Name)
	}
	out := Tensor{Name: name, DType: ts[0].DType, Shape: slices.Clone(ts[0].Shape)}
	out.Shape[0] = 0
	for _, t := range ts {
		if t.DType != out.DType || len(t.Shape) == 0 || !slices.Equal(t.Shape[1:], out.Shape[1:]) {
			return Tensor{}, mismatch(name, ts[0], t)
		}
		out.Shape[0] += t.Shape[0]
		out.Parts = append(out.Parts, t.Parts...)
	}
	return out, nil
}

// Stack joins tensors of the same type and shape along a new first axis,
// without copying: the experts of a layer, for instance.
func Stack(name string, ts ...Tensor) (Tensor, error) {
	if len(ts) == 0 {
		return Tensor{}, fmt.Errorf("%s: %w", name, errNothing)
	}
	out := Tensor{Name: name, DType: ts[0].DType, Shape: append([]int{len(ts)}, ts[0].Shape...)}
	for _, t := range ts {
		if t.DType != out.DType || !slices.Equal(t.Shape, ts[0].Shape) {
			return Tensor{}, mismatch(name, ts[0], t)
		}
		out.Parts = append(out.Parts, t.Parts...)
	}
	return out, nil
}

var errNothing = errors.New("there are no tensors to join")

func mismatch(name string, a, b Tensor) error {
	return fmt.Errorf("%s: %s %v of %s and %s %v of %s cannot be joined", name, a.DType, a.Shape, a.Name, b.DType, b.Shape, b.Name)
}
