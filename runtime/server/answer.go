package server

import (
	"mlxcel/runtime"
	"mlxcel/runtime/chat"
	"mlxcel/runtime/server/toolcall"
)

// answer takes the text of an answer apart while it comes.
type answer struct {
	work
	choice    int // among all that are made together
	splitter  *chat.Splitter
	parser    *toolcall.Parser
	called    int
	reasoning int             // tokens
	tokens    int             // taken
	held      []runtime.Piece // tokens whose text is not given out yet
}

func newAnswer(w *work, i, choice int) *answer {
	a := &answer{work: *w, choice: choice, splitter: chat.NewSplitter(w.markers, w.prompt), parser: toolcall.NewParser(w.calls)}
	a.request.Sampling.Seed += uint64(i) // or all choices would be the same
	return a
}

// take takes a piece, the last one with a summary, or the error that came in its place.
func (a *answer) take(piece runtime.Piece, err error) delta {
	d := delta{choice: a.choice}
	if piece.Token >= 0 {
		a.tokens++
		if a.request.Logprobs && !a.splitter.InReasoning() && !a.model.eos[piece.Token] {
			a.held = append(a.held, piece)
		}
	}
	reasoning, content := a.splitter.Push(piece.Text)
	if piece.Token >= 0 && (reasoning != "" || a.splitter.InReasoning()) {
		a.reasoning++
	}
	last := err != nil || piece.Summary != nil
	if last {
		moreReasoning, moreContent := a.splitter.Flush()
		reasoning, content = reasoning+moreReasoning, content+moreContent
	}
	d.reasoning = reasoning
	items := a.parser.Push(content)
	if last {
		items = append(items, a.parser.Flush()...)
	}
	for _, item := range items {
		switch {
		case a.oneCall && a.called > 0: // nothing counts behind the only call
		case item.Call != nil:
			a.called++
			d.calls = append(d.calls, *item.Call)
		default:
			d.content += item.Text
		}
	}
	switch {
	case a.splitter.InReasoning() || len(d.calls) > 0:
		a.held = nil // they were markers
	case d.content != "":
		d.tokens, a.held = a.held, nil
	}
	switch {
	case last:
		d.end = a.ended(piece.Summary, err)
	case a.oneCall && a.called > 0:
		d.end = &ending{finish: finishCalls, summary: runtime.Summary{
			Finish: runtime.FinishStop, PromptTokens: len(a.request.Tokens), Tokens: a.tokens,
		}, reasoning: a.reasoning}
	}
	return d
}

func (a *answer) ended(summary *runtime.Summary, err error) *ending {
	e := &ending{reasoning: a.reasoning, err: err}
	if summary == nil {
		if err == nil {
			e.err = errStopping
		} else {
			e.err = refused{err}
		}
		return e
	}
	e.summary = *summary
	switch {
	case summary.Finish == runtime.FinishLength:
		e.finish = finishLength
	case a.called > 0:
		e.finish = finishCalls
	default:
		e.finish = finishStop
	}
	return e
}

// outcome is the reason for the end as metrics have it.
func (a *answer) outcome(e *ending) string {
	switch {
	case e.err == nil:
		return e.finish
	case e.summary.Finish == runtime.FinishCancelled:
		return "abort"
	}
	return "error"
}

func (d delta) empty() bool {
	return d.reasoning == "" && d.content == "" && len(d.calls) == 0 && d.end == nil
}
