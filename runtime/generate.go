package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"mlxcel/runtime/chat"
	"mlxcel/runtime/engine"
	"mlxcel/runtime/sample"
)

// Sampling says how tokens are chosen; the zero value takes the most likely one.
type Sampling = sample.Settings

// Message is one message of a chat.
type Message = chat.Message

// Request asks for a continuation of one of Messages, Prompt and Tokens.
type Request struct {
	Messages []Message // a chat; goes through the model's template
	Prompt   string    // text as it is; special tokens written out in it count as such
	Tokens   []int32   // token ids as they are

	Tools        json.RawMessage // for the template: a list of tool definitions
	TemplateArgs map[string]any  // for the template, such as enable_thinking

	MaxTokens int      // of the answer; 0: up to the end of the context
	Stop      []string // texts that end the answer; they are not part of it
	IgnoreEOS bool     // go on after a token that ends an answer
	Visible   []int32  // special tokens that are written out in the text; the others are left out of it
	Sampling  Sampling

	Logprobs    bool // pieces have a Logprob
	TopLogprobs int  // with Logprobs: how many of the likeliest tokens a piece has, at most 100
}

// Finish says why an answer ended.
type Finish = engine.Reason

// The reasons for the end of an answer.
const (
	FinishStop      = engine.Stop   // an end token or a stop text
	FinishLength    = engine.Length // MaxTokens or the end of the context
	FinishCancelled = engine.Cancelled
	FinishError     = engine.Failed
)

// Piece is a token of an answer and the text that became certain with it: characters and stop texts that may still
// continue are held back. The last piece has a Summary and no token.
type Piece struct {
	Token   int32 // -1 in the last piece
	Text    string
	Summary *Summary

	// With Logprobs: the natural logarithm of the probability of Token, by the model alone (before temperature, biases,
	// penalties and filters), and the likeliest tokens in falling order.
	Logprob float64
	Top     []TokenLogprob
}

// TokenLogprob is a token with the logarithm of its probability.
type TokenLogprob struct {
	Token   int32
	Logprob float64
}

// Summary is what can be said of an answer at its end.
type Summary struct {
	Finish       Finish
	PromptTokens int
	CachedTokens int // of the prompt: not computed again
	Tokens       int // of the answer, the one that ended it included

	Prompt time.Duration // from the first step to the first token
	Decode time.Duration // from the first token to the last
	Wait   time.Duration // from the request to the first step
}

// PromptRate is the prompt tokens computed a second, 0 if unknown.
func (s *Summary) PromptRate() float64 { return rate(s.PromptTokens-s.CachedTokens, s.Prompt) }

// DecodeRate is the tokens a second after the first one, 0 if unknown.
func (s *Summary) DecodeRate() float64 { return rate(s.Tokens-1, s.Decode) }

func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// RenderChat puts messages through the model's chat template, ready for the model's answer.
func (m *Model) RenderChat(messages []Message, tools json.RawMessage, args map[string]any) (string, error) {
	template, err := m.chat.get(len(tools) > 0)
	if err != nil {
		return "", err
	}
	text, err := template.Render(messages, chat.Options{AddGenerationPrompt: true, Tools: tools, Kwargs: args})
	var refusal *chat.TemplateError
	if errors.As(err, &refusal) {
		return "", fmt.Errorf("the model's chat template refuses: %w", err)
	}
	return text, err
}

// PromptTokens returns the token ids that a request's prompt becomes.
func (m *Model) PromptTokens(r Request) ([]int32, error) {
	given := 0
	for _, has := range []bool{len(r.Messages) > 0, r.Prompt != "", len(r.Tokens) > 0} {
		if has {
			given++
		}
	}
	switch {
	case given == 0:
		return nil, ErrEmptyPrompt
	case given > 1:
		return nil, errors.New("a request has more than one of Messages, Prompt and Tokens")
	case len(r.Tokens) > 0:
		return r.Tokens, nil
	case m.tokenizer == nil:
		return nil, errNoTokenizer
	case r.Prompt != "":
		// A text that writes its first token out does not get it twice.
		bos := m.chat.special["bos_token"]
		return m.tokenizer.Encode(r.Prompt, bos == "" || !strings.HasPrefix(r.Prompt, bos))
	}
	text, err := m.RenderChat(r.Messages, r.Tools, r.TemplateArgs)
	if err != nil {
		return nil, err
	}
	return m.tokenizer.Encode(text, false) // templates write all special tokens out
}

// Generate answers a request, a piece a token. Breaking out of the loop cancels it. An error ends the sequence; when
// ctx ended, the piece beside the error has a Summary all the same.
func (m *Model) Generate(ctx context.Context, r Request) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		prompt, err := m.PromptTokens(r)
		if err == nil && (r.TopLogprobs < 0 || r.TopLogprobs > maxTopLogprobs) {
			err = fmt.Errorf("top logprobs is %d, want 0 to %d", r.TopLogprobs, maxTopLogprobs)
		}
		if err != nil {
			yield(Piece{Token: -1}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		answer := m.newAnswer(r)
		submitted := time.Now()
		err = m.engine.Submit(ctx, engine.Request{
			Prompt: prompt, MaxTokens: r.MaxTokens, Settings: r.Sampling, Logits: r.Logprobs,
			Accept: answer.accept, Done: answer.done,
		})
		if err != nil {
			yield(Piece{Token: -1}, err)
			return
		}
		for {
			pieces, result := answer.wait()
			for _, p := range pieces {
				if !yield(p, nil) {
					cancel()
					answer.drain()
					return
				}
			}
			if result != nil {
				last := Piece{Token: -1, Text: answer.rest, Summary: summarize(result, len(prompt), submitted)}
				yield(last, result.Err)
				return
			}
		}
	}
}

func summarize(r *engine.Result, prompt int, submitted time.Time) *Summary {
	s := &Summary{Finish: r.Reason, PromptTokens: prompt, CachedTokens: r.Cached, Tokens: r.Generated}
	if !r.Started.IsZero() {
		s.Wait = r.Started.Sub(submitted)
	}
	if !r.FirstToken.IsZero() {
		s.Prompt, s.Decode = r.FirstToken.Sub(r.Started), r.Ended.Sub(r.FirstToken)
	}
	return s
}

// answer carries the tokens of a request from the engine's goroutine to the reader, which may be slower.
type answer struct {
	text textStream // of the engine's goroutine
	eos  []int32
	top  int // likeliest tokens wanted

	mu     sync.Mutex
	pieces []Piece
	result *engine.Result
	rest   string // text held back at the end
	ready  chan struct{}
}

func (m *Model) newAnswer(r Request) *answer {
	a := &answer{ready: make(chan struct{}, 1), top: r.TopLogprobs}
	if !r.IgnoreEOS {
		a.eos = m.eos
	}
	a.text.stops = slices.DeleteFunc(slices.Clone(r.Stop), func(s string) bool { return s == "" })
	if m.tokenizer != nil {
		a.text.decoder = m.tokenizer.NewDecoder(true)
		a.text.visible = map[int32]string{}
		for _, id := range r.Visible {
			a.text.visible[id], _ = m.tokenizer.Token(id)
		}
	}
	return a
}

// accept takes a token from the engine.
func (a *answer) accept(token int32, logits []float32) (stop bool) {
	p := Piece{Token: token}
	if logits != nil {
		p.Logprob, p.Top = logprobs(logits, token, a.top)
	}
	if slices.Contains(a.eos, token) {
		stop = true
	} else {
		p.Text, stop = a.text.add(token)
	}
	a.mu.Lock()
	a.pieces = append(a.pieces, p)
	a.mu.Unlock()
	a.signal()
	return stop
}

// done takes the end of the request from the engine.
func (a *answer) done(r engine.Result) {
	a.mu.Lock()
	a.result, a.rest = &r, a.text.flush()
	a.mu.Unlock()
	a.signal()
}

func (a *answer) signal() {
	select {
	case a.ready <- struct{}{}:
	default: // one is waiting to be seen
	}
}

// wait returns what came since the last call; the result once all pieces were returned.
func (a *answer) wait() ([]Piece, *engine.Result) {
	<-a.ready
	a.mu.Lock()
	defer a.mu.Unlock()
	pieces := a.pieces
	a.pieces = nil
	return pieces, a.result
}

// drain waits for the end of a cancelled request, so that its slot is free when Generate returns.
func (a *answer) drain() {
	for {
		if _, result := a.wait(); result != nil {
			return
		}
	}
}

// Text is Generate for callers that want the whole answer at once.
func (m *Model) Text(ctx context.Context, r Request) (string, *Summary, error) {
	var text strings.Builder
	for p, err := range m.Generate(ctx, r) {
		text.WriteString(p.Text)
		if err != nil {
			return text.String(), p.Summary, fmt.Errorf("model %s: %w", m.Name(), err)
		}
		if p.Summary != nil {
			return text.String(), p.Summary, nil
		}
	}
	return text.String(), nil, nil
}
