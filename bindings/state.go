package bindings

import (
	"runtime"
	"unsafe"
)

// A State holds the keys, values and last tokens of sequences, one per slot. The
// zero value stands for none.
type State struct {
	ctx    *Context
	handle int64
}

// A Layer is the shape of what one layer keeps per token.
type Layer struct {
	KVHeads  int
	KeyDim   int
	ValueDim int
	Window   int // 0: full attention
}

// StateParams describe a state.
type StateParams struct {
	DType        DType // of keys and values
	MaxSequences int   // slots 0 .. MaxSequences-1
	MaxTokens    int   // the longest sequence
	Layers       []Layer
}

// NewState makes a state with every slot empty.
func (c *Context) NewState(p StateParams) (State, error) {
	var pins runtime.Pinner
	defer pins.Unpin()

	layers := make([]rawLayer, len(p.Layers))
	for i, l := range p.Layers {
		layers[i] = rawLayer{
			size:     int64(unsafe.Sizeof(rawLayer{})),
			kvHeads:  int64(l.KVHeads),
			keyDim:   int64(l.KeyDim),
			valueDim: int64(l.ValueDim),
			window:   int64(l.Window),
		}
	}
	raw := &rawStateParams{
		dtype:        int64(p.DType),
		maxSequences: int64(p.MaxSequences),
		maxTokens:    int64(p.MaxTokens),
		layerCount:   int64(len(layers)),
		layers:       (*rawLayer)(pointer(layers)),
	}
	raw.size = int64(unsafe.Sizeof(*raw))
	pins.Pin(raw.layers)
	if err := c.check(c.stateCreate(c.handle, raw, &c.out[0]), -1); err != nil {
		return State{}, err
	}
	return State{c, c.out[0]}, nil
}

// Destroy frees the state.
func (s State) Destroy() error { return s.ctx.check(s.ctx.stateDestroy(s.handle), -1) }

// Bytes returns the memory that keys and values take now.
func (s State) Bytes() (int64, error) {
	raw := &rawStateInfo{}
	raw.size = int64(unsafe.Sizeof(*raw))
	err := s.ctx.check(s.ctx.stateFacts(s.handle, raw), -1)
	return raw.bytes, err
}

// Reset forgets a slot and frees its memory.
func (s State) Reset(slot int) error {
	return s.ctx.check(s.ctx.stateReset(s.handle, int64(slot)), -1)
}

// Copy makes slot to begin with the first tokens of slot from.
func (s State) Copy(from, to, tokens int) error {
	return s.ctx.check(s.ctx.stateCopy(s.handle, int64(from), int64(to), int64(tokens)), -1)
}
