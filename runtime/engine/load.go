package engine

import (
	"fmt"
	"math"
	"unsafe"

	"mlxcel/bindings"
	"mlxcel/runtime/program"
	"mlxcel/runtime/sample"
	"mlxcel/runtime/weights"
)

// weightSet is the resident weights of a model, found by the key that programs know them by.
type weightSet struct {
	resident bindings.Weights
	index    map[string]int64
	bytes    int64
}

// loadWeights makes resident what the program uses; other programs of the model use the same or less.
func loadWeights(ctx *bindings.Context, p *program.Program, checkpoint *weights.Checkpoint, progress func(done, total int64)) (*weightSet, error) {
	set := &weightSet{index: map[string]int64{}}
	var err error
	if set.resident, err = ctx.NewWeights(); err != nil {
		return nil, err
	}
	if err := set.add(ctx, p, checkpoint, progress); err != nil {
		return nil, err
	}
	return set, nil
}

// add brings what the program uses to the library.
func (set *weightSet) add(ctx *bindings.Context, p *program.Program, checkpoint *weights.Checkpoint, progress func(done, total int64)) error {
	files := map[string]bindings.File{}
	defer func() {
		for _, f := range files {
			_ = f.Close() // only read
		}
	}()
	var done, total int64
	for _, v := range p.Weights {
		total += sourceBytes(v.Weight, checkpoint)
	}
	complete := completed(p)
	for _, v := range p.Weights {
		w := bindings.Weight{Name: v.Weight.Key(), DType: v.Weight.Stored, Resident: v.Weight.Resident, Dims: v.Type.Shape}
		if v.Weight.Constant != nil {
			w.DType = bindings.F32
			w.Parts = []bindings.Part{{Data: float32Bytes(v.Weight.Constant)}}
		}
		for _, name := range v.Weight.Tensors {
			for _, part := range checkpoint.Tensors[name].Parts {
				if part.Random() {
					w.Parts = append(w.Parts, bindings.Part{Random: true, Bytes: part.Size})
					continue
				}
				f, ok := files[part.Path]
				if !ok {
					var err error
					if f, err = ctx.OpenFile(part.Path); err != nil {
						return err
					}
					files[part.Path] = f
				}
				w.Parts = append(w.Parts, bindings.Part{File: f, Layout: part.Layout, Offset: part.Offset, Bytes: part.Size})
			}
		}
		if p := w.Parts[0]; p.Random { // made up, as a whole
			p.Bytes, p.Offset = sourceBytes(v.Weight, checkpoint), int64(len(set.index))
			w.Parts = []bindings.Part{p}
		}
		i, err := set.resident.Add(w)
		if err != nil {
			return fmt.Errorf("loading %v: %w", v.Weight.Tensors, err)
		}
		set.index[w.Name] = int64(i)
		for _, m := range complete[v] {
			q := m.Quant
			if err := set.resident.Pack(set.number(m.Weight), set.number(m.Scales), set.number(m.Biases), int64(q.Mode), int64(q.Bits), int64(q.Group)); err != nil {
				return fmt.Errorf("loading %v: %w", m.Weight.Weight.Tensors, err)
			}
		}
		set.bytes += int64(v.Type.Elements() * v.Weight.Resident.Size())
		done += sourceBytes(v.Weight, checkpoint)
		if progress != nil {
			progress(done, total)
		}
	}
	return nil
}

// number is the index of a weight that was added, -1 for none.
func (set *weightSet) number(v *program.Value) int {
	if v == nil {
		return -1
	}
	return int(set.index[v.Weight.Key()])
}

// completed returns the matrices of a program by the last one of their weights.
func completed(p *program.Program) map[*program.Value][]program.Matrix {
	order := map[*program.Value]int{}
	for i, v := range p.Weights {
		order[v] = i
	}
	out := map[*program.Value][]program.Matrix{}
	for _, op := range p.Ops {
		if m, ok := op.Matrix(); ok {
			last := m.Weight
			for _, v := range []*program.Value{m.Scales, m.Biases} {
				if v != nil && order[v] > order[last] {
					last = v
				}
			}
			out[last] = append(out[last], m)
		}
	}
	return out
}

func sourceBytes(w *program.Weight, checkpoint *weights.Checkpoint) int64 {
	n := int64(4 * len(w.Constant))
	for _, name := range w.Tensors {
		n += checkpoint.Tensors[name].Size()
	}
	return n
}

// float32Bytes views f as its little-endian bytes; every machine that mlxcel runs on is little-endian.
func float32Bytes(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}

// stateParams is the state that the layers of a program need.
func stateParams(p *program.Program, dtype bindings.DType, slots, maxTokens int) bindings.StateParams {
	s := bindings.StateParams{DType: dtype, MaxSequences: slots, MaxTokens: maxTokens}
	for _, l := range p.Layers {
		s.Layers = append(s.Layers, bindings.Layer(l))
	}
	return s
}

// pageBytes is how much memory a page takes.
func pageBytes(s bindings.StateParams) int64 {
	n := 0
	for _, layer := range s.Layers {
		n += layer.KVHeads * (layer.KeyDim + layer.ValueDim) * pageTokens * s.DType.Size()
	}
	return int64(n)
}

// pages is how many pages the cache has: as many as were asked for, or as all that may run at once could need, if they
// fit in half of the memory that is free and in the limit on a GPU's, if there is one. Where the longest sequence would
// need more, it is made shorter, unless it was asked for.
func (l *loop) pages(o Options, bytes, room int64) (int, error) {
	longest := pagesFor(l.facts.MaxTokens)
	most := l.most * longest
	if o.CacheTokens > 0 {
		most = pagesFor(o.CacheTokens)
	} else if facts, err := l.context.DeviceFacts(); err != nil { // after the weights were loaded
		return 0, err
	} else if facts.FreeMemory > 0 && bytes > 0 {
		most = min(most, max(int(facts.FreeMemory/2/bytes), 1))
		if room > 0 { // a cache has room for a quarter more tokens than it holds, at most
			most = min(most, max(int(room*4/5/bytes), 1))
		}
	}
	switch {
	case most >= longest:
	case o.MaxTokens == 0:
		l.facts.MaxTokens = most * pageTokens
	case o.CacheTokens > 0:
		return 0, fmt.Errorf("a context of %d tokens does not fit in a cache for %d: make one of them shorter or the other larger", o.MaxTokens, o.CacheTokens)
	default:
		most = longest
	}
	return most, nil
}

// contextTokens is how long sequences may become: what was asked for, bounded by what the model was trained for.
func contextTokens(asked, trained int) (int, error) {
	const unknown = 1 << 20
	if trained == 0 {
		trained = unknown
	}
	switch {
	case asked == 0:
		return min(trained, unknown), nil
	case asked < 2 || asked > math.MaxInt32:
		return 0, fmt.Errorf("a context of %d tokens is not possible, want 2 or more", asked)
	case asked > trained:
		return 0, fmt.Errorf("a context of %d tokens is more than the %d that the model was trained for", asked, trained)
	}
	return asked, nil
}

// limits are what the program for a step of these counts is recorded for. A run of a program costs what its own counts do,
// and each program takes memory, and the time of some steps when it is made: so there are but three sizes, for the next
// token of one sequence, for that of several, and for prompts.
func (l *loop) limits(tokens, rows int, hidden bool) program.Limits {
	limits := program.Limits{Tokens: 1, Sequences: 1}
	switch {
	case tokens > l.most:
		limits.Tokens, limits.Sequences = max(l.chunk+l.most, tokens), l.most
	case tokens > 1:
		limits.Tokens, limits.Sequences = l.most, l.most
	}
	switch {
	case hidden:
		limits.Rows = limits.Tokens
	case rows > 0:
		limits.Rows = limits.Sequences
	}
	return limits
}

// variant is what the programs of a model differ in.
type variant struct {
	limits program.Limits
	tail   sample.Features
	hidden bool // ends with hidden states, without a tail
}

// loaded is a program in the library, with the arguments of its runs.
type loaded struct {
	recorded *program.Program
	program  bindings.Program
	run      *bindings.Run
}

// program returns the program for the counts of a step, recording it when it is the first of its kind.
func (l *loop) program(tokens, rows int, tail sample.Features, hidden bool) (*loaded, error) {
	v := variant{l.limits(tokens, rows, hidden), tail, hidden}
	if p, ok := l.programs[v]; ok {
		return p, nil
	}
	var p *program.Program
	var err error
	if hidden {
		p, err = l.model.RecordHidden(l.activation, v.limits)
	} else {
		p, err = l.model.Record(l.activation, v.limits, tail.Tail())
	}
	if err != nil {
		return nil, err
	}
	for _, v := range p.Weights {
		if _, ok := l.weights.index[v.Weight.Key()]; !ok {
			return nil, fmt.Errorf("the program uses the weight %v, which was not loaded", v.Weight.Tensors)
		}
	}
	words := p.Encode(func(w *program.Weight) int64 { return l.weights.index[w.Key()] })
	handle, err := l.context.LoadProgram(l.weights.resident, l.state, words)
	if err != nil {
		return nil, describe(err, p)
	}
	lp := &loaded{p, handle, bindings.NewRun(len(p.Inputs), len(p.Outputs))}
	l.programs[v] = lp
	return lp, nil
}

// describe adds the layer and the op that a library's error is about.
func describe(err error, p *program.Program) error {
	if e, ok := err.(*bindings.Error); ok && e.Op >= 0 && e.Op < len(p.Ops) {
		return fmt.Errorf("%s: %w", p.Ops[e.Op].Describe(), err)
	}
	return err
}

// common is how many tokens two sequences begin with alike.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
