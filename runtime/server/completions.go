package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"mlxcel/runtime"
	"mlxcel/runtime/server/toolcall"
)

const (
	maxPrompts        = 32
	defaultCompletion = 16 // tokens, as OpenAI has it
	wantPrompt        = "a string, an array of strings, an array of token ids or an array of arrays of token ids"
)

// completionRequest is a request to the older API that was checked.
type completionRequest struct {
	works             []*work // by prompt
	echoes            []string
	choices           int // by prompt
	stream, withUsage bool
}

// completions answers POST /v1/completions.
func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	c, done, err := s.completionRequest(w, r)
	if err != nil {
		return err
	}
	defer done()
	if c.stream {
		return s.completionStream(w, r, c)
	}
	return s.completionWhole(w, r, c)
}

func (s *Server) completionRequest(w http.ResponseWriter, r *http.Request) (_ *completionRequest, done func(), err error) {
	l, o, err := s.open(w, r)
	if err != nil {
		return nil, nil, err
	}
	l.named(o)
	about(o)
	c := &completionRequest{choices: choices(o)}
	c.stream, c.withUsage = streaming(o)
	wanted := runtime.Request{
		MaxTokens: limit(o, defaultCompletion, "max_tokens"), Stop: stops(o), Sampling: s.sampling(o, l), IgnoreEOS: o.flag("ignore_eos", false),
	}
	echo := o.flag("echo", false)
	if n, ok := o.integer("logprobs", 0, maxTopLogprobs); ok {
		wanted.Logprobs, wanted.TopLogprobs = true, int(n)
		if echo {
			o.fail(notYet("logprobs", "those of the prompt are not there yet: want none with echo: true"))
		}
	}
	if n, ok := o.integer("best_of", 1, maxChoices); ok && int(n) != c.choices {
		o.fail(notYet("best_of", "choosing among more answers than are returned is not possible: want the same as n, or nothing"))
	}
	if suffix, ok := o.text("suffix"); ok && suffix != "" {
		o.fail(notYet("suffix", "filling in is not possible: want none"))
	}
	prompts := prompts(o, "prompt", l)
	if err := o.Err(); err != nil {
		return nil, nil, err
	}
	if done, err = s.admit(len(prompts) * c.choices); err != nil {
		return nil, nil, err
	}
	for i, p := range prompts {
		work, err := l.completionWork(p, wanted)
		if err != nil {
			done()
			return nil, nil, err
		}
		work.choices = c.choices
		work.request.Sampling.Seed += uint64(i * c.choices) // equal prompts get different answers
		c.works = append(c.works, work)
		c.echoes = append(c.echoes, "")
		if echo {
			c.echoes[i] = p.text
			if p.tokens != nil {
				c.echoes[i] = l.Tokenizer().Decode(p.tokens, false)
			}
		}
	}
	return c, done, nil
}

// prompt is a text, or tokens.
type prompt struct {
	text   string
	tokens []int32
}

// prompts reads one or several prompts from a field.
func prompts(o *object, field string, l *loaded) []prompt {
	v := o.raw(field)
	switch {
	case v == nil:
		o.missing(field, wantPrompt)
		return nil
	case v[0] == '"':
		text, _ := o.text(field)
		return []prompt{{text: text}}
	case v[0] != '[':
		o.wrongType(field, wantPrompt)
		return nil
	}
	list := o.list(field, max(l.Facts().MaxTokens, maxPrompts))
	switch {
	case o.Err() != nil:
		return nil
	case len(list) == 0:
		o.bad(field, "want at least one prompt, got none")
		return nil
	case kindOf(list[0]) == "a number":
		return []prompt{{tokens: tokenIDs(o, field, list, l.vocab)}}
	case len(list) > maxPrompts:
		o.bad(field, "want at most %d prompts, got %d", maxPrompts, len(list))
		return nil
	}
	var prompts []prompt
	for i, e := range list {
		prompts = append(prompts, promptOf(o, at(field, i), e, l))
	}
	return prompts
}

func promptOf(o *object, field string, v json.RawMessage, l *loaded) prompt {
	switch kindOf(v) {
	case "a string":
		var text string
		_ = json.Unmarshal(v, &text) // it is a string
		return prompt{text: text}
	case "an array":
		list, err := elements(v, l.Facts().MaxTokens)
		if err != nil {
			o.bad(field, "%v", err)
		}
		return prompt{tokens: tokenIDs(o, field, list, l.vocab)}
	}
	o.bad(field, "want a string or an array of token ids, got %s", kindOf(v))
	return prompt{}
}

// tokenIDs reads a list of token ids; it is never nil.
func tokenIDs(o *object, field string, list []json.RawMessage, vocab int) []int32 {
	ids := make([]int32, 0, len(list))
	for i, e := range list {
		n, ok := wholeNumber(e)
		if !ok || n < 0 || n >= int64(vocab) {
			o.bad(at(field, i), "want a token id from 0 to %d, got %s", vocab-1, shorten(string(e)))
			return ids
		}
		ids = append(ids, int32(n))
	}
	return ids
}

// completionWork makes work of a prompt.
func (l *loaded) completionWork(p prompt, r runtime.Request) (*work, error) {
	w := &work{model: l, request: r, calls: toolcall.None}
	w.request.Tokens = p.tokens
	if p.tokens == nil && p.text != "" {
		var err error
		if w.request.Tokens, err = l.PromptTokens(runtime.Request{Prompt: p.text}); err != nil {
			return nil, badField("prompt", "cannot be turned into tokens: %v", err)
		}
	}
	if p.tokens == nil && p.text == "" {
		w.request.Tokens = l.Tokenizer().PrefixIDs() // an empty text is its beginning, where models know that
	}
	return w, l.fits(w.request.Tokens, "prompt")
}

// completion is the object of the older API, whole or as a chunk of a stream.
type completion struct {
	ID          string             `json:"id"`
	Object      string             `json:"object"`
	Created     int64              `json:"created"`
	Model       string             `json:"model"`
	Fingerprint string             `json:"system_fingerprint"`
	Choices     []completionChoice `json:"choices"`
	Usage       *usage             `json:"usage,omitempty"`
}

type completionChoice struct {
	Text     string          `json:"text"`
	Index    int             `json:"index"`
	Logprobs *legacyLogprobs `json:"logprobs"`
	Finish   *string         `json:"finish_reason"`
}

// legacyLogprobs are log-probabilities in the form of the older API.
type legacyLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []float64            `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"` // of the tokens in the text, in bytes
}

// add adds tokens; offset is where the text of the first one begins. It returns where the next one's does.
func (p *legacyLogprobs) add(l *loaded, pieces []runtime.Piece, offset int) int {
	for _, piece := range pieces {
		text := l.tokenText(piece.Token)
		p.Tokens = append(p.Tokens, text)
		p.Logprobs = append(p.Logprobs, max(piece.Logprob, lowestLogprob))
		top := map[string]float64{}
		for _, other := range piece.Top {
			if name := l.tokenText(other.Token); top[name] == 0 { // several parts of characters look alike: the likeliest counts
				top[name] = max(other.Logprob, lowestLogprob)
			}
		}
		p.Top = append(p.Top, top)
		p.Offsets = append(p.Offsets, offset)
		offset += len(text)
	}
	return offset
}

func (s *Server) newCompletion(l *loaded) completion {
	return completion{
		ID: s.newID("cmpl-"), Object: "text_completion", Created: s.now().Unix(), Model: l.id, Fingerprint: s.options.Build,
		Choices: []completionChoice{},
	}
}

// complete makes the answers of all prompts at once.
func (s *Server) complete(r *http.Request, c *completionRequest, emit func(delta) error, idle func() error) (*usage, error) {
	total := &usage{}
	byPrompt := make([]usage, len(c.works))
	err := s.runAll(r.Context(), c.works, func(d delta) error {
		if d.end != nil {
			byPrompt[d.choice/c.choices].add(d.end, d.choice%c.choices)
			exchangeOf(r).note(d.end)
		}
		return emit(d)
	}, idle)
	for _, u := range byPrompt {
		total.PromptTokens += u.PromptTokens
		total.CompletionTokens += u.CompletionTokens
		total.TotalTokens += u.TotalTokens
		total.PromptDetails.CachedTokens += u.PromptDetails.CachedTokens
	}
	return total, err
}

func (s *Server) completionWhole(w http.ResponseWriter, r *http.Request, c *completionRequest) error {
	texts := make([]strings.Builder, len(c.works)*c.choices)
	built := make([]completionChoice, len(texts))
	offsets := make([]int, len(texts))
	for i := range texts {
		texts[i].WriteString(c.echoes[i/c.choices])
	}
	l := c.works[0].model
	total, err := s.complete(r, c, func(d delta) error {
		b := &built[d.choice]
		texts[d.choice].WriteString(d.content)
		if len(d.tokens) > 0 {
			if b.Logprobs == nil {
				b.Logprobs = &legacyLogprobs{}
			}
			offsets[d.choice] = b.Logprobs.add(l, d.tokens, offsets[d.choice])
		}
		if d.end != nil {
			b.Finish = &d.end.finish
		}
		return nil
	}, func() error { return nil })
	if err != nil {
		return err
	}
	answer := s.newCompletion(l)
	answer.Usage = total
	for i := range built {
		built[i].Index, built[i].Text = i, texts[i].String()
	}
	answer.Choices = built
	s.writeJSON(w, http.StatusOK, answer)
	return nil
}

func (s *Server) completionStream(w http.ResponseWriter, r *http.Request, c *completionRequest) error {
	stream := s.newEvents(w)
	l := c.works[0].model
	head := s.newCompletion(l)
	offsets := make([]int, len(c.works)*c.choices)
	send := func(choice completionChoice) error {
		chunk := head
		chunk.Choices = []completionChoice{choice}
		return stream.send("", chunk)
	}
	return s.streamed(r, stream, func() error {
		if err := stream.comment(); err != nil { // so that the head goes out at once
			return err
		}
		for i := range offsets {
			if echo := c.echoes[i/c.choices]; echo != "" {
				if err := send(completionChoice{Index: i, Text: echo}); err != nil {
					return err
				}
			}
		}
		total, err := s.complete(r, c, func(d delta) error {
			choice := completionChoice{Index: d.choice, Text: d.content}
			if len(d.tokens) > 0 {
				choice.Logprobs = &legacyLogprobs{}
				offsets[d.choice] = choice.Logprobs.add(l, d.tokens, offsets[d.choice])
			}
			if d.end != nil {
				choice.Finish = &d.end.finish
			}
			return send(choice)
		}, stream.comment)
		if err != nil {
			return err
		}
		if !c.withUsage {
			return stream.done()
		}
		last := head
		last.Usage = total
		return errors.Join(stream.send("", last), stream.done())
	})
}
