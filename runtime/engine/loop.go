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

	waiting []*sequence // in order of arrival, but those that were running first
	running []*sequence // have a slot, in order of admission
	most    int         // sequences that may run at once
	cache   *cache
	pending *step // enqueued and not read yet
	step    batch // the inputs of the step being made
	hidden  bool  // the last step computed hidden states
	stats   Stats // the sums

	fault func() error // of Options, never nil
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
	handed   int // hidden states that the request has got
	placed   bool
	result   Result
	ended    bool
	suspect  suspicion
}

// suspicion is what is thought of a sequence that was in a step that failed.
type suspicion int

const (
	trusted   suspicion = iota
	suspected           // is to be computed alone
	onTrial             // is being computed alone
)

// step is one run that was enqueued: a token per row, and the logits of all rows where one of them wants its own; or, of
// requests that want them, the hidden states of all tokens.
type step struct {
	tokens bindings.Value
	logits *bindings.Value
	rows   []*sequence

	hidden  *bindings.Value
	members []member // with hidden
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
	var limit int64
	if l.context, l.facts.Device, limit, err = openContext(library, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.destroy()
		}
		if errors.Is(err, bindings.ErrDevice) {
			err = lost(err)
		}
	}()
	if l.activation = o.Activation; l.activation == 0 {
		l.activation = floatType(l.facts.Device, checkpoint)
	}
	if l.chunk = o.Chunk; l.chunk == 0 {
		l.chunk = defaultChunk(l.facts.Device.Device, library.Info().Backend)
	}
	if l.most = o.Slots; l.most <= 0 {
		l.most = defaultSlots
	}
	whole, err := model.Record(l.activation, program.Limits{Tokens: 1, Rows: 1, Sequences: 1}, sample.Features{}.Tail())
	if err != nil {
		return nil, err
	}
	n := needOf(whole, l.activation)
	var step work
	if limit > 0 {
		if n.steps, err = l.steps(o.Chunk == 0); err != nil {
			return nil, err
		}
		if l.facts.MaxTokens, step, err = n.fit(limit, l.facts.Device.FreeMemory, l.facts.MaxTokens, o.MaxTokens > 0); err != nil {
			return nil, err
		}
		l.chunk = step.chunk
	}
	if l.weights, err = loadWeights(l.context, whole, checkpoint, o.Progress); err != nil {
		return nil, err
	}
	slots := l.most + endedSlots + 1
	params := stateParams(whole, l.activation, slots, l.facts.MaxTokens)
	pages, err := l.pages(o, pageBytes(params), n.cacheRoom(limit, step))
	if err != nil {
		return nil, err
	}
	params.MaxTokens = l.facts.MaxTokens
	if l.state, err = l.context.NewState(params); err != nil {
		return nil, err
	}
	l.cache = newCache(l.state, slots, pages, library.Info().Backend == "native", !o.NoReuse)
	if l.fault = o.fault; l.fault == nil {
		l.fault = func() error { return nil }
	}
	// The library says here, and not at the first request, if it lacks an op.
	if _, err = l.program(1, 1, sample.Features{}, false); err != nil {
		return nil, err
	}
	l.facts.WeightBytes, l.facts.LoadTime = l.weights.bytes, time.Since(begin)
	return l, nil
}

// defaultChunk is how many prompt tokens a step takes: enough to be fast, and so few that a step, which cannot be
// interrupted, takes a second or two at most.
func defaultChunk(device bindings.Device, backend string) int {
	switch {
	case device == bindings.DeviceCPU && backend == "mlx":
		return 128
	case device == bindings.DeviceCPU:
		return 256
	}
	return 2048
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
	for len(l.waiting) > 0 && len(l.running) < l.most && l.fits(l.waiting[0]) && !l.comes(l.waiting[0]) {
		s := l.waiting[0]
		if err := l.place(s); err != nil {
			l.end(s, Failed, err)
			continue
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
	s.Slots = make([]SlotStats, l.most)
	for i, r := range l.running {
		s.Slots[i] = SlotStats{true, r.filled}
	}
	s.Pages = l.cache.most
	s.PagesHeld = l.cache.held()
	s.PagesKept = l.cache.used - s.PagesHeld
	l.engine.stats.Store(&s)
}

// fits reports whether there are pages for what is known of a sequence and for its next token, beside what the running
// ones hold, were promised at their own start, and need to grow by a page each. Pages of ended sequences count as free.
func (l *loop) fits(s *sequence) bool {
	if len(l.running) == 0 {
		return true // see newLoop: the longest sequence has enough of them for itself
	}
	pages := l.cache.held() + pagesFor(len(s.tokens)+1) - l.cache.heldOf(s.tokens)
	for _, r := range l.running {
		pages += max(pagesFor(len(r.tokens)+1)-len(l.cache.slots[r.slot].pages), 0) + 1
	}
	return pages <= l.cache.most
}

// worthWaiting is how many tokens that another sequence is about to compute are better waited for than computed twice.
const worthWaiting = 16

// comes reports whether a running sequence is about to compute more of the beginning of s than there is: requests that
// begin alike often come at once, as the choices of one chat do.
func (l *loop) comes(s *sequence) bool {
	if !l.cache.keep || s.Hidden != nil {
		return false
	}
	_, known := l.cache.root.longest(s.tokens)
	return slices.ContainsFunc(l.running, func(r *sequence) bool {
		alike := common(r.tokens, s.tokens)
		return alike > r.filled && alike >= known+worthWaiting
	})
}

// place gives s a slot, with what there is of its beginning.
func (l *loop) place(s *sequence) error {
	slot, shared, err := l.cache.take(s.tokens, s.Hidden == nil)
	if err != nil {
		return err
	}
	s.slot, s.placed, s.filled = slot, true, shared
	if s.result.Started.IsZero() {
		s.result.Cached = shared
	}
	return nil
}

// makeRoom sees to it that there are pages for what the running sequences compute next: those of ended sequences, or
// else those of the sequence that came last, which waits again. Its tokens are computed once more later, as far as its
// pages were needed.
func (l *loop) makeRoom() error {
	need := func() int {
		pages, budget := 0, l.promptBudget()
		for _, s := range l.running {
			pages += l.cache.lack(s.slot, s.filled, s.filled+s.next(budget))
		}
		return pages
	}
	for {
		enough, err := l.cache.makeFree(need)
		if enough || err != nil {
			return err
		}
		if l.pending != nil { // no token may be in flight
			l.read(nil)
			continue
		}
		if len(l.running) == 1 {
			return errNoRoom
		}
		l.retreat(l.running[len(l.running)-1])
		l.stats.Preemptions++
	}
}

// errNoRoom cannot come up as long as the longest sequence has enough pages, which newLoop sees to.
var errNoRoom = errors.New("the cache of keys and values has no page left for the only sequence")

// next is how many tokens of s a step may take that can hold so many of prompts.
func (s *sequence) next(budget int) int {
	if s.inFlight {
		return 1
	}
	return min(len(s.tokens)-s.filled, budget)
}

// retreat makes a running sequence wait again, before all others. No token of it may be in flight.
func (l *loop) retreat(s *sequence) {
	l.leave(s)
	s.placed, s.inFlight, s.filled, s.handed = false, false, 0, 0
	l.waiting = slices.Insert(l.waiting, 0, s)
	l.engine.waiting.Add(1)
}

// leave takes a sequence out of those that run. Its slot keeps what the state holds of it.
func (l *loop) leave(s *sequence) {
	i := slices.Index(l.running, s)
	l.running = slices.Delete(l.running, i, i+1)
	l.cache.release(s.slot)
}

// promptBudget is how many prompt tokens the next step may take: few where answers are being written, so that they do
// not falter.
func (l *loop) promptBudget() int {
	if slices.ContainsFunc(l.running, func(s *sequence) bool { return s.inFlight }) {
		return max(l.chunk/16, min(l.chunk, 16))
	}
	return l.chunk
}

// chosen are the running sequences that the next step is made of, and whether it computes hidden states: one that is
// suspected alone; else those that want hidden states and those that want tokens by turns.
func (l *loop) chosen() (sequences []*sequence, hidden bool) {
	for _, s := range l.running {
		if s.suspect != trusted {
			s.suspect = onTrial
			return []*sequence{s}, s.Hidden != nil
		}
	}
	wants := func(hidden bool) []*sequence {
		return slices.DeleteFunc(slices.Clone(l.running), func(s *sequence) bool { return (s.Hidden != nil) != hidden })
	}
	if sequences = wants(!l.hidden); len(sequences) > 0 {
		return sequences, !l.hidden
	}
	return wants(l.hidden), l.hidden
}

// enqueue makes a step; nil if no running sequence has anything to compute, or nothing will be read of it.
func (l *loop) enqueue() (*step, error) {
	if err := l.makeRoom(); err != nil {
		return nil, err
	}
	b := &l.step
	b.reset()
	budget := l.promptBudget()
	var features sample.Features
	sequences, hidden := l.chosen()
	for _, s := range sequences {
		n := s.next(budget)
		row := s.inFlight || hidden || n == len(s.tokens)-s.filled
		switch {
		case s.inFlight && len(s.tokens)+1 >= s.limit, n == 0: // the token in flight is its last; or others take the budget
			continue
		case s.inFlight:
			b.add(s, 0, row)
		default:
			budget -= n
			b.add(s, n, row)
		}
		if row {
			features = features.Union(s.features())
		}
	}
	if len(b.members) == 0 {
		return nil, nil
	}
	if hidden {
		b.allRows()
	}
	now := time.Now()
	b.tail.Reset(features)
	st := &step{}
	for _, m := range b.members {
		s := m.sequence
		if s.result.Started.IsZero() {
			s.result.Started = now
		}
		if m.row && !hidden {
			b.tail.Append(&s.Settings, s.tokens, s.inFlight, s.filled+m.count)
			st.rows = append(st.rows, s)
		}
		l.cache.open(s.slot, s.filled, s.filled+m.count)
	}
	if err := l.launch(b, features, hidden, st); err != nil {
		return nil, err
	}
	for _, m := range b.members {
		s := m.sequence
		s.filled += m.count
		s.inFlight = m.row && !hidden
		l.note(s)
	}
	l.hidden = hidden
	l.stats.Steps++
	l.stats.StepSequences += uint64(len(b.members))
	l.stats.StepTokens += uint64(len(b.tokens))
	if len(b.rows) == 0 {
		// Nothing will be read of this step. Wait for it, so that steps do not pile up and a cancelled prompt ends soon.
		return nil, l.context.Synchronize()
	}
	return st, nil
}

// note tells the cache what is known of a sequence in the state.
func (l *loop) note(s *sequence) { l.cache.note(s.slot, s.tokens[:min(s.filled, len(s.tokens))]) }

// launch enqueues the step that b holds.
func (l *loop) launch(b *batch, features sample.Features, hidden bool, st *step) error {
	if err := l.fault(); err != nil {
		return err
	}
	p, err := l.program(len(b.tokens), len(b.rows), features, hidden)
	if err != nil {
		return err
	}
	b.set(p.run)
	if err := p.program.Run(p.run); err != nil {
		return describe(err, p.recorded)
	}
	if len(b.rows) == 0 {
		return nil
	}
	first := p.run.Output(0)
	if hidden {
		st.hidden, st.members = &first, slices.Clone(b.members)
		return nil
	}
	st.tokens = first
	if features.Logits {
		logits := p.run.Output(1)
		st.logits = &logits
	}
	return nil
}

// read waits for the pending step, hands out its tokens, and makes next the pending one.
func (l *loop) read(next *step) {
	st := l.pending
	l.pending = next
	switch {
	case st == nil:
		return
	case st.hidden != nil:
		l.readHidden(st)
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

// readHidden hands out hidden states.
func (l *loop) readHidden(st *step) {
	width, count := l.model.Config.Hidden, 0
	for _, m := range st.members {
		count += m.count
	}
	states := make([]float32, count*width)
	if err := errors.Join(l.fault(), bindings.ReadInto(*st.hidden, states), st.hidden.Free()); err != nil {
		l.fail(err)
		return
	}
	for _, m := range st.members {
		s, own := m.sequence, states[:m.count*width]
		states = states[len(own):]
		if s.ended {
			continue
		}
		s.suspect = trusted
		s.Hidden(s.handed, own)
		if s.handed += m.count; s.handed == len(s.tokens) {
			l.end(s, Stop, nil)
		}
	}
}

// results reads what a step has computed and gives its values back.
func (l *loop) results(st *step) (ids []int32, logits []float32, err error) {
	ids = make([]int32, len(st.rows))
	err = errors.Join(l.fault(), bindings.ReadInto(st.tokens, ids), st.tokens.Free())
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
	s.suspect = trusted
	s.tokens = append(s.tokens, id)
	l.note(s)
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

// end takes a sequence out and tells its request.
func (l *loop) end(s *sequence, reason Reason, err error) {
	if s.ended {
		return
	}
	s.ended = true
	if s.placed {
		l.leave(s)
	} else {
		l.waiting = slices.DeleteFunc(l.waiting, func(t *sequence) bool { return t == s })
		l.engine.waiting.Add(-1)
	}
	s.result.Reason, s.result.Err, s.result.Ended = reason, err, time.Now()
	s.Done(s.result)
}

// fail does what is left to do when a step failed. With the device lost, everything ends. Else what the state holds is
// unknown, and so is whose fault it was: all running sequences are computed again, each alone until it has a token. One
// that fails alone ends.
func (l *loop) fail(err error) {
	if errors.Is(err, bindings.ErrDevice) {
		l.breakDown(err)
		return
	}
	if st := l.pending; st != nil { // what it computed comes again
		l.pending = nil
		for _, v := range []*bindings.Value{&st.tokens, st.logits, st.hidden} {
			if v != nil && *v != (bindings.Value{}) {
				_ = v.Free() // nothing is left to do about a failure
			}
		}
	}
	for _, s := range slices.Backward(slices.Clone(l.running)) {
		if s.suspect == onTrial {
			l.end(s, Failed, fmt.Errorf("the step failed: %w", err))
			continue
		}
		l.retreat(s)
		s.suspect = suspected
	}
	l.cache.forget()
	if errors.Is(err, bindings.ErrMemory) {
		_ = l.context.Trim() // best effort
	}
}

// breakDown ends everything for good.
func (l *loop) breakDown(err error) {
	if l.engine.Err() == nil {
		l.engine.failure = lost(err)
		close(l.engine.broken)
	}
	for _, s := range slices.Concat(l.running, l.waiting) {
		l.end(s, Failed, l.engine.failure)
	}
}

// lost is what is said about a failure that only a lost device explains.
func lost(err error) error {
	return fmt.Errorf("the device is lost: %w; start again, and if it happens again, restart the computer and update the driver", err)
}
