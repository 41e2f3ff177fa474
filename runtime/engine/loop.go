package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mlxcel/bindings"
	"mlxcel/runtime/models"
	"mlxcel/runtime/program"
	"mlxcel/runtime/sample"
	"mlxcel/runtime/weights"
)

// loop is the state of the engine's goroutine.
type loop struct {
	engine     *Engine // its counters, and what others see
	facts      Facts
	model      *models.Model
	activation bindings.DType
	chunk      int

	context  *bindings.Context
	weights  *weightSet
	state    bindings.State
	programs map[variant]*loaded

	waiting []*sequence // in order of arrival
	running []*sequence // have a slot, in order of admission
	slots   []slot
	pending *step // enqueued and not read yet
	step    batch // the inputs of the step being made
	clock   uint64
	stats   Stats // the sums
}

// slot remembers which tokens the library's state holds.
type slot struct {
	tokens []int32
	busy   bool
	used   uint64 // by the clock, for eviction
}

// sequence is a request on its way.
type sequence struct {
	Request
	ctx    context.Context
	slot   int
	tokens []int32 // prompt and answer, as far as known here
	filled int     // how many tokens are in the state, or enqueued to be
	// inFlight is whether a token is being computed that is not in tokens yet.
	inFlight bool
	limit    int // tokens may grow to this
	placed   bool
	result   Result
	ended    bool
}

// step is one run that was enqueued: a token per row, and the logits of all rows where one of them wants its own.
type step struct {
	tokens bindings.Value
	logits *bindings.Value
	rows   []*sequence
}

// features are the parts of the tail that the sequence needs.
func (s *sequence) features() sample.Features {
	f := s.Settings.Features()
	f.Logits = s.Logits
	return f
}

func newLoop(library *bindings.Library, model *models.Model, checkpoint *weights.Checkpoint, o Options) (_ *loop, err error) {
	begin := time.Now()
	l := &loop{model: model, programs: map[variant]*loaded{}}
	if l.facts.MaxTokens, err = contextTokens(o.MaxTokens, model.Config.MaxPositions); err != nil {
		return nil, err
	}
	if l.context, err = library.NewContext(o.Context); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.destroy()
		}
	}()
	if l.facts.Device, err = l.context.DeviceFacts(); err != nil {
		return nil, err
	}
	l.activation = l.facts.Device.Activation
	if l.chunk = o.Chunk; l.chunk == 0 {
		l.chunk = defaultChunk(l.facts.Device.Device, library.Info().Backend)
	}
	l.slots = make([]slot, max(o.Slots, 1))
	if o.Slots == 0 {
		l.slots = make([]slot, 4)
	}
	whole, err := model.Record(l.activation, program.Limits{Tokens: 1, Rows: 1, Sequences: 1}, sample.Features{}.Tail())
	if err != nil {
		return nil, err
	}
	if l.weights, err = loadWeights(l.context, whole, checkpoint, o.Progress); err != nil {
		return nil, err
	}
	if l.state, err = l.context.NewState(stateParams(whole, l.activation, len(l.slots), l.facts.MaxTokens)); err != nil {
		return nil, err
	}
	// The library says here, and not at the first request, if it lacks an op.
	if _, err = l.program(1, 1, 1, sample.Features{}); err != nil {
		return nil, err
	}
	l.facts.WeightBytes, l.facts.LoadTime = l.weights.bytes, time.Since(begin)
	return l, nil
}

// defaultChunk is how many prompt tokens a step takes: enough to be fast, and so few that a step, which cannot be
// interrupted, takes a second or two at most. MLX's CPU kernels gain nothing from more.
func defaultChunk(device bindings.Device, backend string) int {
	switch {
	case device == bindings.DeviceCPU && backend == "mlx":
		return 16
	case device == bindings.DeviceCPU:
		return 256
	}
	return 512
}

func (l *loop) destroy() {
	_ = l.context.Destroy() // takes with it all that was made from it; nothing is left to do about a failure
}

// run serves until closing.
func (l *loop) run(commands <-chan func(*loop), closing <-chan struct{}) {
	for {
		if len(l.waiting)+len(l.running) == 0 && l.pending == nil {
			stayAwake(false)
			select {
			case f := <-commands:
				stayAwake(true)
				f(l)
			case <-closing:
				l.shut(commands)
				return
			}
		}
		for drained := false; !drained; {
			select {
			case f := <-commands:
				f(l)
			case <-closing:
				l.shut(commands)
				return
			default:
				drained = true
			}
		}
		l.turn()
	}
}

// shut ends everything, commands that came too late included.
func (l *loop) shut(commands <-chan func(*loop)) {
	for drained := false; !drained; {
		select {
		case f := <-commands:
			f(l)
		default:
			drained = true
		}
	}
	for _, s := range slices.Concat(l.running, l.waiting) {
		l.end(s, Cancelled, ErrClosed)
	}
	l.read(nil)
}

// admit puts a request into the queue.
func (l *loop) admit(ctx context.Context, r Request) {
	s := &sequence{Request: r, ctx: ctx, tokens: slices.Clone(r.Prompt), limit: l.facts.MaxTokens}
	if r.MaxTokens > 0 {
		s.limit = min(s.limit, len(r.Prompt)+r.MaxTokens)
	}
	l.waiting = append(l.waiting, s)
	if err := l.engine.Err(); err != nil {
		l.end(s, Failed, err)
	}
}

// turn does one round: give slots to waiting sequences, enqueue a step, read the step before it.
func (l *loop) turn() {
	for _, s := range slices.Concat(l.running, l.waiting) {
		if err := context.Cause(s.ctx); err != nil {
			l.end(s, Cancelled, err)
		}
	}
	for len(l.waiting) > 0 {
		s := l.waiting[0]
		placed, err := l.place(s)
		if err != nil {
			l.end(s, Failed, err)
			continue
		}
		if !placed {
			break
		}
		l.waiting = l.waiting[1:]
		l.running = append(l.running, s)
		l.engine.waiting.Add(-1)
	}
	next, err := l.enqueue()
	if err != nil {
		l.fail(err)
		next = nil
	}
	l.read(next)
	l.publish()
}

// publish makes how things stand visible to other goroutines.
func (l *loop) publish() {
	s := l.stats
	s.Running = len(l.running)
	s.Slots = make([]SlotStats, len(l.slots))
	for i, c := range l.slots {
		s.Slots[i] = SlotStats{c.busy, len(c.tokens)}
	}
	for _, r := range l.running {
		s.Slots[r.slot].Tokens = r.filled
	}
	l.engine.stats.Store(&s)
}

// place gives s a free slot and what another slot, free or busy, holds of its beginning. It reports whether there was
// a free one.
func (l *loop) place(s *sequence) (bool, error) {
	target := l.oldestFree(-1)
	if target < 0 {
		return false, nil
	}
	source, shared := l.longestBeginning(s.tokens)
	shared = min(shared, len(s.tokens)-1) // the last token must be computed to have logits
	c := &l.slots[source]
	switch {
	case shared == 0:
		if err := l.state.Reset(target); err != nil {
			return false, err
		}
	case !c.busy && 2*shared >= len(c.tokens):
		target = source // most of what it holds goes on being of use
	default:
		if other := l.oldestFree(source); other >= 0 {
			target = other
			if err := l.state.Copy(source, target, shared); err != nil {
				return false, err
			}
		} else {
			target = source // the only free one
		}
	}
	l.clock++
	c = &l.slots[target]
	c.busy, c.used = true, l.clock
	c.tokens = append(c.tokens[:0], s.tokens[:shared]...)
	s.slot, s.placed, s.filled, s.result.Cached = target, true, shared, shared
	return true, nil
}

// oldestFree is the free slot, other than `but`, that was not used for the longest time; -1 if there is none.
func (l *loop) oldestFree(but int) int {
	best := -1
	for i := range l.slots {
		if c := &l.slots[i]; i != but && !c.busy && (best < 0 || c.used < l.slots[best].used) {
			best = i
		}
	}
	return best
}

// longestBeginning is the slot whose state shares the most tokens with the beginning of a sequence.
func (l *loop) longestBeginning(tokens []int32) (slot, shared int) {
	for i := range l.slots {
		if n := common(l.slots[i].tokens, tokens); n > shared && !l.slots[i].busy {
			slot, shared = i, n
		}
	}
	for _, r := range l.running {
		if n := common(r.tokens[:min(r.filled, len(r.tokens))], tokens); n > shared {
			slot, shared = r.slot, n
		}
	}
	return slot, shared
}

// promptBudget is how many prompt tokens the next step may take: few where answers are being written, so that they do
// not falter.
func (l *loop) promptBudget() int {
	if slices.ContainsFunc(l.running, func(s *sequence) bool { return s.inFlight }) {
		return max(l.chunk/8, min(l.chunk, 16))
	}
	return l.chunk
}

// enqueue makes a step of all running sequences that have something to compute; nil if none has.
func (l *loop) enqueue() (*step, error) {
	b := &l.step
	b.reset()
	budget := l.promptBudget()
	var features sample.Features
	for _, s := range l.running {
		known := len(s.tokens) - s.filled
		switch {
		case s.inFlight && len(s.tokens)+1 >= s.limit: // the token in flight is its last
			continue
		case s.inFlight:
			b.add(s, 0, true)
			features = features.Union(s.features())
		case known > 0 && budget > 0:
			n := min(known, budget)
			budget -= n
			b.add(s, n, n == known)
			if n == known {
				features = features.Union(s.features())
			}
		}
	}
	if len(b.members) == 0 {
		return nil, nil
	}
	now := time.Now()
	b.tail.Reset(features)
	st := &step{}
	for _, m := range b.members {
		s := m.sequence
		if s.result.Started.IsZero() {
			s.result.Started = now
		}
		if m.row {
			b.tail.Append(&s.Settings, s.tokens, s.inFlight, s.filled+m.count)
			st.rows = append(st.rows, s)
		}
	}
	p, err := l.program(len(b.tokens), len(b.rows), len(b.slots), features)
	if err != nil {
		return nil, err
	}
	b.set(p.run)
	if err := p.program.Run(p.run); err != nil {
		return nil, describe(err, p.recorded)
	}
	for _, m := range b.members {
		s := m.sequence
		s.filled += m.count
		s.inFlight = m.row
	}
	l.stats.Steps++
	l.stats.StepSequences += uint64(len(b.members))
	l.stats.StepTokens += uint64(len(b.tokens))
	if len(st.rows) == 0 {
		// Nothing will be read of this step. Wait for it, so that steps do not pile up and a cancelled prompt ends soon.
		return nil, l.context.Synchronize()
	}
	st.tokens = p.run.Output(0)
	if features.Logits {
		logits := p.run.Output(1)
		st.logits = &logits
	}
	return st, nil
}

// read waits for the pending step, hands out its tokens, and makes next the pending one.
func (l *loop) read(next *step) {
	st := l.pending
	l.pending = next
	if st == nil {
		return
	}
	ids, logits, err := l.results(st)
	if err != nil {
		l.fail(err)
		return
	}
	now := time.Now()
	for i, s := range st.rows {
		if s.ended { // it stopped while this token was computed
			continue
		}
		var row []float32
		if s.Logits {
			n := l.model.Config.Vocabulary
			row = logits[i*n : (i+1)*n]
		}
		l.deliver(s, ids[i], row, now)
		// A row that is in the next step too still has a token in flight.
		s.inFlight = !s.ended && next != nil && slices.Contains(next.rows, s)
	}
}

// results reads what a step has computed and gives its values back.
func (l *loop) results(st *step) (ids []int32, logits []float32, err error) {
	ids = make([]int32, len(st.rows))
	err = errors.Join(bindings.ReadInto(st.tokens, ids), st.tokens.Free())
	if st.logits != nil {
		logits = make([]float32, len(st.rows)*l.model.Config.Vocabulary)
		err = errors.Join(err, bindings.ReadInto(*st.logits, logits), st.logits.Free())
	}
	return ids, logits, err
}

// errNotANumber is the error for what the library says with a token of -1.
var errNotANumber = errors.New("the model computed something that is not a number: its weights are damaged, download it again")

// deliver appends a token to its sequence and ends it where that was the last.
func (l *loop) deliver(s *sequence, id int32, logits []float32, now time.Time) {
	if id < 0 {
		l.end(s, Failed, errNotANumber)
		return
	}
	s.tokens = append(s.tokens, id)
	s.result.Generated++
	if s.result.FirstToken.IsZero() {
		s.result.FirstToken = now
	}
	switch stop := s.Accept(id, logits); {
	case stop:
		l.end(s, Stop, nil)
	case len(s.tokens) >= s.limit:
		l.end(s, Length, nil)
	}
}

// end takes a sequence out and tells its request. Its slot keeps what the state holds of it.
func (l *loop) end(s *sequence, reason Reason, err error) {
	if s.ended {
		return
	}
	s.ended = true
	same := func(t *sequence) bool { return t == s }
	if i := slices.IndexFunc(l.running, same); i >= 0 {
		l.running = slices.Delete(l.running, i, i+1)
		c := &l.slots[s.slot]
		c.busy = false
		c.tokens = append(c.tokens[:0], s.tokens[:min(s.filled, len(s.tokens))]...)
	}
	if !s.placed {
		l.waiting = slices.DeleteFunc(l.waiting, same)
		l.engine.waiting.Add(-1)
	}
	s.result.Reason, s.result.Err, s.result.Ended = reason, err, time.Now()
	s.Done(s.result)
}

// fail ends all running sequences: what their state holds after an error is unknown. With the device lost, it ends the
// waiting ones too.
func (l *loop) fail(err error) {
	if errors.Is(err, bindings.ErrDevice) {
		l.breakDown(err)
		return
	}
	err = fmt.Errorf("the step failed: %w", err)
	for _, s := range slices.Clone(l.running) {
		l.end(s, Failed, err)
		l.slots[s.slot].tokens = nil
		_ = l.state.Reset(s.slot) // best effort: a slot without tokens is overwritten from its start
	}
}

// breakDown ends everything for good.
func (l *loop) breakDown(err error) {
	if l.engine.Err() == nil {
		l.engine.failure = fmt.Errorf("the device is lost: %w", err)
		close(l.engine.broken)
	}
	for _, s := range slices.Concat(l.running, l.waiting) {
		l.end(s, Failed, l.engine.failure)
	}
}
