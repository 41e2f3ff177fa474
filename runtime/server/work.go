package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"mlxcel/runtime"
	"mlxcel/runtime/chat"
	"mlxcel/runtime/server/toolcall"
)

// work is a request that was checked and can be given to the model.
type work struct {
	model   *loaded
	request runtime.Request // with Tokens
	choices int             // answers that are asked for
	prompt  string          // rendered, to know whether the answer begins within reasoning
	markers chat.Markers    // around reasoning, empty to leave it in place
	calls   toolcall.Format // None where no tools are offered
	oneCall bool            // end an answer behind its first call
}

// delta is what became certain of one answer.
type delta struct {
	choice    int
	reasoning string
	content   string
	calls     []toolcall.Call
	tokens    []runtime.Piece // whose text is in content, with log-probabilities
	end       *ending         // of the last delta of a choice
}

// ending says what became of an answer.
type ending struct {
	finish    string // in OpenAI's words
	summary   runtime.Summary
	reasoning int // tokens of the reasoning
	err       error
}

// Reasons for the end of an answer, in OpenAI's words.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishCalls  = "tool_calls"
)

// run makes all answers of w at once and hands out what comes of them, on the caller's goroutine; idle is called when
// nothing came for a while. It returns the first error of the model, emit or idle, when all answers have ended.
func (s *Server) run(ctx context.Context, w *work, emit func(delta) error, idle func() error) error {
	return s.runAll(ctx, []*work{w}, emit, idle)
}

// runAll is run for several works; the choices of the deltas count through all of them.
func (s *Server) runAll(ctx context.Context, works []*work, emit func(delta) error, idle func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	deltas := make(chan delta)
	var answers sync.WaitGroup
	first := 0
	for _, w := range works {
		for i := range w.choices {
			a := newAnswer(w, i, first+i)
			answers.Go(func() { s.answer(ctx, a, deltas) })
		}
		first += w.choices
	}
	go func() { answers.Wait(); close(deltas) }()
	defer func() {
		cancel()
		for range deltas { // until all have ended, so that their places are free
		}
	}()
	timer := time.NewTimer(s.options.KeepAlive)
	defer timer.Stop()
	for {
		var err error
		select {
		case d, more := <-deltas:
			if !more {
				return nil
			}
			if d.end != nil && d.end.err != nil {
				return d.end.err
			}
			err = emit(d)
		case <-timer.C:
			err = idle()
		}
		if err != nil {
			return err
		}
		timer.Reset(s.options.KeepAlive)
	}
}

// answer makes one answer.
func (s *Server) answer(ctx context.Context, a *answer, deltas chan<- delta) {
	defer func() {
		if bug := recover(); bug != nil {
			s.log.Error("internal error", "error", fmt.Sprint(bug), "stack", string(debug.Stack()))
			deltas <- delta{choice: a.choice, end: &ending{err: fmt.Errorf("internal error: %v", bug)}}
		}
	}()
	var last time.Time
	for piece, err := range a.model.Generate(ctx, a.request) {
		if now := time.Now(); piece.Token >= 0 {
			if !last.IsZero() {
				s.metrics.interToken.observe(now.Sub(last).Seconds())
			}
			last = now
		}
		d := a.take(piece, err)
		if d.end != nil {
			s.measured(&d.end.summary, a.outcome(d.end))
		}
		if !d.empty() {
			deltas <- d
		}
		if d.end != nil {
			return
		}
	}
}
