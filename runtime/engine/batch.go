package engine

import (
	"mlxcel/bindings"
	"mlxcel/runtime/sample"
)

// batch collects the inputs of one step: the ragged batch of program.Step and those of the tail.
type batch struct {
	members []member

	tokens     []int32
	tokenSlots []int32
	positions  []int32
	slots      []int32
	offsets    []int32
	contexts   []int32
	rows       []int32
	rowSlots   []int32

	tail   sample.Rows
	inputs []sample.Input
}

// member is what a sequence does in a step: count tokens, and whether their last one gets logits.
type member struct {
	sequence *sequence
	count    int
	row      bool
}

func (b *batch) reset() {
	*b = batch{
		b.members[:0], b.tokens[:0], b.tokenSlots[:0], b.positions[:0], b.slots[:0], append(b.offsets[:0], 0),
		b.contexts[:0], b.rows[:0], b.rowSlots[:0], b.tail, b.inputs[:0],
	}
}

// add takes the next n known tokens of s into the step, or, with n = 0, the token that is still in flight.
func (b *batch) add(s *sequence, n int, row bool) {
	slot := int32(s.slot)
	if n == 0 {
		n = 1
		b.tokens = append(b.tokens, bindings.TokenLast)
	} else {
		b.tokens = append(b.tokens, s.tokens[s.filled:s.filled+n]...)
	}
	for i := range n {
		b.tokenSlots = append(b.tokenSlots, slot)
		b.positions = append(b.positions, int32(s.filled+i))
	}
	b.slots = append(b.slots, slot)
	b.offsets = append(b.offsets, int32(len(b.tokens)))
	b.contexts = append(b.contexts, int32(s.filled+n))
	if row {
		b.rows = append(b.rows, int32(len(b.tokens)-1))
		b.rowSlots = append(b.rowSlots, slot)
	}
	b.members = append(b.members, member{s, n, row})
}

// allRows makes all tokens rows.
func (b *batch) allRows() {
	b.rows, b.rowSlots = b.rows[:0], append(b.rowSlots[:0], b.tokenSlots...)
	for i := range b.tokens {
		b.rows = append(b.rows, int32(i))
	}
}

// set points the arguments of a run at the step, in the order in which program.Step and the tail declare inputs.
func (b *batch) set(run *bindings.Run) {
	run.Tokens, run.Rows, run.Sequences = len(b.tokens), len(b.rows), len(b.slots)
	inputs := [][]int32{b.tokens, b.tokenSlots, b.positions, b.slots, b.offsets, b.contexts}
	if len(b.rows) > 0 {
		inputs = append(inputs, b.rows, b.rowSlots)
	}
	for i, in := range inputs {
		bindings.SetInput(run, i, in)
	}
	if len(b.rows) > 0 {
		for i, in := range b.tail.Inputs(b.inputs) {
			if in.Int32s != nil {
				bindings.SetInput(run, len(inputs)+i, in.Int32s)
			} else {
				bindings.SetInput(run, len(inputs)+i, in.Float32s)
			}
		}
	}
}
