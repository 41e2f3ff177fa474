package bindings

import (
	"runtime"
	"unsafe"
)

// A Program is loaded and ready to run.
type Program struct {
	ctx    *Context
	handle int64
}

// LoadProgram checks an encoded program (the header says how) against weights
// and state, either of which may be the zero value, and prepares it. The *Error
// of a wrong program holds the index of the op.
func (c *Context) LoadProgram(w Weights, s State, words []int64) (Program, error) {
	c.op = -1
	status := c.programLoad(c.handle, w.handle, s.handle, (*int64)(pointer(words)), int64(len(words)), &c.out[0], &c.op)
	if err := c.check(status, c.op); err != nil {
		return Program{}, err
	}
	return Program{c, c.out[0]}, nil
}

// Describe says how the library runs the program, a line a stage.
func (p Program) Describe() (string, error) {
	c := p.ctx
	text, status := c.text(func(text *byte, capacity int64, length *int64) Status {
		return c.programDescribe(p.handle, text, capacity, length)
	})
	return text, c.check(status, -1)
}

// Destroy frees the program.
func (p Program) Destroy() error { return p.ctx.check(p.ctx.programDestroy(p.handle), -1) }

// Element is the Go types of elements; 16-bit floats travel as uint16.
type Element interface {
	~bool | ~uint8 | ~int8 | ~uint16 | ~int16 | ~uint32 | ~int32 | ~uint64 | ~int64 | ~float32 | ~float64
}

// A Run is the arguments of running a program, to be filled in and used again for
// every step: running it allocates nothing.
type Run struct {
	Tokens, Rows, Sequences int // live counts

	ctx     *Context
	raw     rawRun
	inputs  []unsafe.Pointer
	outputs []int64
	pins    []runtime.Pinner // one per pointer, as a Pinner allocates from its sixth on
}

// NewRun makes the arguments for programs with so many inputs and outputs.
func NewRun(inputs, outputs int) *Run {
	r := &Run{
		inputs:  make([]unsafe.Pointer, inputs),
		outputs: make([]int64, outputs),
		pins:    make([]runtime.Pinner, inputs+2),
	}
	r.raw = rawRun{
		size:        int64(unsafe.Sizeof(r.raw)),
		inputCount:  int64(inputs),
		inputs:      (*unsafe.Pointer)(pointer(r.inputs)),
		outputCount: int64(outputs),
		outputs:     (*int64)(pointer(r.outputs)),
	}
	return r
}

// SetInput makes data, row-major with the live rows only, the input i of the runs
// that follow. It is read during Program.Run and stays the caller's.
func SetInput[T Element](r *Run, i int, data []T) { r.inputs[i] = pointer(data) }

// Output returns the output i of the last run.
func (r *Run) Output(i int) Value { return Value{r.ctx, r.outputs[i]} }

// Run enqueues the program and returns without waiting for it. Each output of r
// is then a new Value, to be freed. The *Error of an op that failed holds its
// index.
func (p Program) Run(r *Run) error {
	r.raw.tokens, r.raw.rows, r.raw.sequences = int64(r.Tokens), int64(r.Rows), int64(r.Sequences)
	r.ctx, p.ctx.op = p.ctx, -1
	r.pin()
	status := p.ctx.programRun(p.handle, &r.raw, &p.ctx.op)
	r.unpin()
	return p.ctx.check(status, p.ctx.op)
}

// pin keeps what the library reads and writes in its place.
func (r *Run) pin() {
	for i, input := range r.inputs {
		r.pins[i].Pin(input)
	}
	r.pins[len(r.inputs)].Pin(r.raw.inputs)
	r.pins[len(r.inputs)+1].Pin(r.raw.outputs)
}

func (r *Run) unpin() {
	for i := range r.pins {
		r.pins[i].Unpin()
	}
}

// A Value is an output of a run.
type Value struct {
	ctx    *Context
	handle int64
}

// Read waits for the value and copies its live rows to data, whose size must be theirs.
func (v Value) Read(data []byte) error { return ReadInto(v, data) }

// Free gives the value back; it need not have been read.
func (v Value) Free() error { return v.ctx.check(v.ctx.valueFree(v.handle), -1) }

// ReadInto is Read for elements of any type.
func ReadInto[T Element](v Value, data []T) error {
	var element T
	size := len(data) * int(unsafe.Sizeof(element))
	return v.ctx.check(v.ctx.valueRead(v.handle, pointer(data), int64(size)), -1)
}
