// Package engine runs a model: one goroutine, locked to its thread, owns the library's context and serves all requests
// of the model together.
//
// It works in steps. A step holds one token of every sequence that is generating and a chunk of the prompts that are
// still being read; sequences join and leave between steps. Steps are double-buffered: step n+1 is enqueued with the
// token of step n still on the device, then the token of step n is read. So a sequence that stops has one token
// computed past its end, which is dropped.
//
// Keys and values lie in pages, of which there is a fixed number. A sequence that has ended leaves them behind, and one
// that begins with the same tokens computes only what is new. A request starts when there are pages for its prompt; when
// they run out later, the one that came last gives its own back and goes on when there are enough again.
//
// On Windows the machine does not go to sleep by itself while a model is loaded or a request runs (SetThreadExecutionState).
package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"mlxcel/bindings"
	"mlxcel/runtime/models"
	"mlxcel/runtime/sample"
	"mlxcel/runtime/weights"
)

// Options size an engine. Zero values are replaced by defaults.
type Options struct {
	Context   bindings.ContextParams
	MaxTokens int // the longest sequence, prompt and answer; default: what the model was trained for, at most 1<<20
	Slots     int // sequences that run at once, default 4
	Queue     int // requests that may wait to run; 0: any number
	Chunk     int // prompt tokens of one step; default: what suits the device and library. A step cannot be interrupted

	// CacheTokens is how many tokens' keys and values there is room for, of all sequences together, those included that
	// have ended; in pages of 64. Default: for Slots sequences of MaxTokens, in at most half of the memory that is free.
	CacheTokens int
	NoReuse     bool // compute every prompt from its beginning

	// GPUMemory is the share of a GPU's free memory that the model may take, default 0.9. Context.MemoryLimit, if set,
	// is the limit itself.
	GPUMemory float64
	// Available, if more than 0, is how many bytes of a GPU's memory the system lets the process have, where that may be
	// less than what is free.
	Available int64
	// Activation is the float type to compute in; default: what suits device and model.
	Activation bindings.DType

	// Progress, if not nil, is told how many bytes of the weights are loaded.
	Progress func(done, total int64)

	fault func() error // in tests: asked before each step and each reading of results, whose error it makes up
}

const (
	defaultSlots = 4
	// endedSlots is how many sequences that have ended may be kept beside those that run, if there are pages for them.
	endedSlots = 32
)

// Errors that callers may want to tell apart.
var (
	ErrClosed        = errors.New("the model is closed")
	ErrPromptTooLong = errors.New("the prompt is too long")
	ErrEmptyPrompt   = errors.New("the prompt is empty")
	ErrQueueFull     = errors.New("too many requests are waiting: try again later")
	ErrNoRoom        = errors.New("the model does not fit into the GPU's memory")
)

// Reason says why a request ended.
type Reason string

// The reasons.
const (
	Stop      Reason = "stop"      // Accept said so
	Length    Reason = "length"    // MaxTokens, or the end of the context
	Cancelled Reason = "cancelled" // the request's context ended, or the engine was closed
	Failed    Reason = "error"
)

// Request is a sequence to continue.
type Request struct {
	Prompt    []int32 // at least one token
	MaxTokens int     // of the answer; 0: up to the end of the context
	Settings  sample.Settings
	Logits    bool // Accept gets the logits too

	// Hidden, if not nil, makes this a request for the model's last hidden states, normed, of all tokens of the prompt:
	// they come in order, several tokens at once, f32 [n, hidden], with the position of the first one; valid during the
	// call. If the engine has to begin anew, so do they, at position 0. Nothing is generated then.
	Hidden func(position int, states []float32)

	// Accept is called with each token in order and says whether it is the last one. With Logits it is also given what
	// the token was chosen from, before biases and penalties: one per token of the vocabulary, valid during the call.
	// Done is called once, after the last Accept. Both run on the engine's goroutine: they must not wait for anything.
	Accept func(token int32, logits []float32) (stop bool)
	Done   func(Result)
}

// Result is what became of a request.
type Result struct {
	Reason    Reason
	Err       error // with Cancelled and Failed
	Cached    int   // prompt tokens that were taken from the cache
	Generated int   // tokens handed to Accept

	Started    time.Time // when the first step of the request began
	FirstToken time.Time // zero if there was none
	Ended      time.Time
}

// Facts describe a started engine.
type Facts struct {
	Device      bindings.DeviceFacts
	MaxTokens   int
	WeightBytes int64 // resident
	LoadTime    time.Duration
}

// Stats are a look at a running engine.
type Stats struct {
	Running, Waiting int // requests
	Slots            []SlotStats
	Pages            int    // there may be, of 64 tokens each
	PagesHeld        int    // by requests that run
	PagesKept        int    // of requests that have ended, for others that begin alike; given up when they are needed
	Steps            uint64 // since the start
	StepSequences    uint64 // the sequences of all steps together: divided by Steps, the mean batch
	StepTokens       uint64 // the tokens that all steps computed
	Preemptions      uint64 // how often a request had to wait again, for pages
}

// SlotStats describe a place for a request that runs.
type SlotStats struct {
	Busy   bool
	Tokens int // in the cache
}

// Engine serves one model.
type Engine struct {
	facts    Facts
	vocab    int
	queue    int
	commands chan func(*loop)
	closing  chan struct{}
	closed   chan struct{}
	once     sync.Once

	waiting atomic.Int64 // requests that do not run
	stats   atomic.Pointer[Stats]
	broken  chan struct{} // closed when the device is lost
	failure error         // why; written before broken is closed
}

// Start opens a context on a thread of its own and loads the weights.
func Start(library *bindings.Library, model *models.Model, checkpoint *weights.Checkpoint, options Options) (*Engine, error) {
	e := &Engine{
		vocab:    model.Config.Vocabulary,
		queue:    options.Queue,
		broken:   make(chan struct{}),
		commands: make(chan func(*loop)),
		closing:  make(chan struct{}),
		closed:   make(chan struct{}),
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and what the library kept for it
		defer close(e.closed)
		stayAwake(true) // also while the weights are loaded; the end of the thread ends it
		l, err := newLoop(library, model, checkpoint, options)
		if err != nil {
			started <- err
			return
		}
		e.facts, l.engine = l.facts, e
		l.publish()
		started <- nil
		l.run(e.commands, e.closing)
		l.destroy()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return e, nil
}

// Facts returns what is known since the start.
func (e *Engine) Facts() Facts { return e.facts }

// Submit queues a request; Done will be called unless an error is returned. The request ends early when ctx ends.
func (e *Engine) Submit(ctx context.Context, r Request) error {
	if len(r.Prompt) == 0 {
		return ErrEmptyPrompt
	}
	if len(r.Prompt) >= e.facts.MaxTokens {
		return fmt.Errorf("%w: %d tokens, and the context of %d must hold the answer too: shorten it, or give the model a larger context", ErrPromptTooLong, len(r.Prompt), e.facts.MaxTokens)
	}
	for _, id := range r.Prompt {
		if id < 0 || int(id) >= e.vocab {
			return fmt.Errorf("token %d of the prompt is outside the vocabulary of %d: the tokenizer does not belong to the model", id, e.vocab)
		}
	}
	if err := r.Settings.Check(e.vocab); err != nil {
		return err
	}
	select {
	case <-e.broken:
		return e.failure
	default:
	}
	if n := e.waiting.Add(1); e.queue > 0 && n > int64(e.queue) {
		e.waiting.Add(-1)
		return ErrQueueFull
	}
	if err := e.do(func(l *loop) { l.admit(ctx, r) }); err != nil {
		e.waiting.Add(-1)
		return err
	}
	return nil
}

// Stats returns how things stood after the last step. It does not wait.
func (e *Engine) Stats() Stats {
	s := *e.stats.Load()
	s.Waiting = int(e.waiting.Load())
	return s
}

// Broken is closed when the device is lost and the engine can serve nothing more; then Err says why.
func (e *Engine) Broken() <-chan struct{} { return e.broken }

// Err is why the engine is broken, nil while it is not.
func (e *Engine) Err() error {
	select {
	case <-e.broken:
		return e.failure
	default:
		return nil
	}
}

// Memory asks the library for the memory in use.
func (e *Engine) Memory() (bindings.Memory, error) {
	type answer struct {
		memory bindings.Memory
		err    error
	}
	ch := make(chan answer, 1)
	if err := e.do(func(l *loop) {
		m, err := l.context.Memory()
		ch <- answer{m, err}
	}); err != nil {
		return bindings.Memory{}, err
	}
	select {
	case a := <-ch:
		return a.memory, a.err
	case <-e.closed:
		return bindings.Memory{}, ErrClosed
	}
}

// Stages says how the library runs a step of so many tokens, of which the last one gets logits; a line a stage.
func (e *Engine) Stages(tokens int) (string, error) {
	type answer struct {
		text string
		err  error
	}
	ch := make(chan answer, 1)
	err := e.do(func(l *loop) {
		p, err := l.program(tokens, 1, sample.Features{}, false)
		if err != nil {
			ch <- answer{"", err}
			return
		}
		text, err := p.program.Describe()
		ch <- answer{text, err}
	})
	if err != nil {
		return "", err
	}
	select {
	case a := <-ch:
		return a.text, a.err
	case <-e.closed:
		return "", ErrClosed
	}
}

// do hands f to the engine's goroutine.
func (e *Engine) do(f func(*loop)) error {
	select {
	case <-e.closing:
		return ErrClosed
	default:
	}
	select {
	case e.commands <- f:
		return nil
	case <-e.closing:
		return ErrClosed
	}
}

// Close cancels what is running, frees the model and waits until that is done. It may be called again.
func (e *Engine) Close() {
	e.once.Do(func() { close(e.closing) })
	<-e.closed
}
