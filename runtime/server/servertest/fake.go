// Package servertest has a model for tests of servers: it needs no library, and says what a test lets it say.
package servertest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mlxcel/runtime"
	"mlxcel/runtime/chat"
	"mlxcel/runtime/engine"
	"mlxcel/runtime/tokenizer"
)

// Answer is what a model is to answer.
type Answer struct {
	Text     string        // special tokens written out in it count as such
	Prefill  time.Duration // before the first token
	PerToken time.Duration // before each token
	Err      error         // comes behind the text, in place of the end
	Endless  bool          // the text comes again and again
	Panic    bool          // the model has a bug
}

// Model is a model whose tokens are bytes, and a few special ones.
type Model struct {
	ID      string
	Context int // longest prompt and answer together
	Source  string
	Slots   int
	Vectors bool // it makes embeddings, of the number of tokens and -0.5
	// Script says what to answer to a prompt; nil repeats the prompt's last message.
	Script func(prompt string, r runtime.Request) Answer

	tokenizer *tokenizer.Tokenizer
	template  *chat.Template
	eos       int32

	places  chan struct{}
	running atomic.Int64
	waiting atomic.Int64
	steps   atomic.Uint64
	broken  chan struct{}
	err     error

	mu       sync.Mutex
	seen     map[string]bool // prompts
	requests []runtime.Request
}

// New makes a model that repeats what it is told, with 8 slots and a context of 4096 tokens.
func New() *Model {
	m := &Model{ID: "fake-1B", Context: 4096, Source: Template, Slots: 8, broken: make(chan struct{}), seen: map[string]bool{}}
	return m.Init()
}

// Init makes changes of Source and Slots count. It must not be called while the model is used.
func (m *Model) Init() *Model {
	var err error
	if m.tokenizer, err = tokenizer.Parse(tokenizerJSON()); err != nil {
		panic(err)
	}
	m.template = nil
	if m.Source != "" {
		if m.template, err = chat.New(m.Source, nil); err != nil {
			panic(err)
		}
	}
	m.eos, _ = m.tokenizer.TokenID(end)
	m.places = make(chan struct{}, m.Slots)
	return m
}

// Break makes the model useless, as a lost device does.
func (m *Model) Break(err error) {
	m.err = err
	close(m.broken)
}

// Active is how many answers are being made or wait.
func (m *Model) Active() int { return int(m.running.Load() + m.waiting.Load()) }

// Requests are those that came so far.
func (m *Model) Requests() []runtime.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Last is the request that came last.
func (m *Model) Last() runtime.Request {
	all := m.Requests()
	return all[len(all)-1]
}

// Prompt is the text of a request's prompt.
func (m *Model) Prompt(r runtime.Request) string { return m.tokenizer.Decode(r.Tokens, false) }

// Name returns ID.
func (m *Model) Name() string { return m.ID }

// Facts returns the context.
func (m *Model) Facts() runtime.Facts {
	return runtime.Facts{MaxTokens: m.Context, WeightBytes: 1 << 20, LoadTime: time.Second}
}

// Stats counts requests.
func (m *Model) Stats() engine.Stats {
	s := engine.Stats{Running: int(m.running.Load()), Waiting: int(m.waiting.Load()), Steps: m.steps.Load(), StepSequences: m.steps.Load()}
	s.Pages, s.PagesHeld, s.PagesKept = 64*m.Slots, s.Running, 3
	for i := range m.Slots {
		s.Slots = append(s.Slots, engine.SlotStats{Busy: i < s.Running, Tokens: 10 * i})
	}
	return s
}

// Tokenizer returns one of bytes.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tokenizer }

// EOS returns the token at the end of messages.
func (m *Model) EOS() []int32 { return []int32{m.eos} }

// SpecialToken knows only the end of messages.
func (m *Model) SpecialToken(name string) string {
	if name == "eos_token" {
		return end
	}
	return ""
}

// ChatTemplate returns Source.
func (m *Model) ChatTemplate(bool) (string, error) { return m.Source, nil }

// Reasoning returns the template's markers.
func (m *Model) Reasoning(bool) (chat.Markers, bool) {
	if m.template == nil {
		return chat.Markers{}, false
	}
	return m.template.Reasoning()
}

// RenderChat renders Source.
func (m *Model) RenderChat(messages []runtime.Message, tools json.RawMessage, args map[string]any) (string, error) {
	if m.template == nil {
		return "", chat.ErrNoTemplate
	}
	return m.template.Render(messages, chat.Options{AddGenerationPrompt: true, Tools: tools, Kwargs: args})
}

// PromptTokens returns the bytes of a prompt.
func (m *Model) PromptTokens(r runtime.Request) ([]int32, error) {
	if r.Prompt != "" {
		return m.tokenizer.Encode(r.Prompt, true)
	}
	if len(r.Tokens) == 0 {
		return nil, runtime.ErrEmptyPrompt
	}
	return r.Tokens, nil
}

// Embeds follows Vectors.
func (m *Model) Embeds() error {
	if m.Vectors {
		return nil
	}
	return runtime.ErrNoEmbedder
}

// Embed makes vectors.
func (m *Model) Embed(_ context.Context, inputs [][]int32) ([][]float32, error) {
	var vectors [][]float32
	for _, tokens := range inputs {
		vectors = append(vectors, []float32{float32(len(tokens)), -0.5})
	}
	return vectors, nil
}

// Broken is closed by Break.
func (m *Model) Broken() <-chan struct{} { return m.broken }

// Err is what Break was given.
func (m *Model) Err() error { return m.err }

// Generate gives the answer of Script, a token a piece.
func (m *Model) Generate(ctx context.Context, r runtime.Request) iter.Seq2[runtime.Piece, error] {
	return func(yield func(runtime.Piece, error) bool) {
		none := runtime.Piece{Token: -1}
		if len(r.Tokens) >= m.Context {
			yield(none, fmt.Errorf("%w: %d tokens", runtime.ErrPromptTooLong, len(r.Tokens)))
			return
		}
		m.mu.Lock()
		m.requests = append(m.requests, r)
		m.mu.Unlock()
		m.waiting.Add(1)
		select {
		case m.places <- struct{}{}:
			m.waiting.Add(-1)
		case <-ctx.Done():
			m.waiting.Add(-1)
			yield(none, context.Cause(ctx))
			return
		}
		m.running.Add(1)
		defer func() { m.running.Add(-1); <-m.places }()
		m.speak(ctx, r, yield)
	}
}

// Template is that of ChatML, with tools in the form of Hermes and reasoning between <think> and </think>.
const Template = `{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}
Write <tool_call>{"name": …, "arguments": …}</tool_call>.<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endif %}{{ m.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}`

// end ends messages.
const end = "<|im_end|>"

// lastMessage is what the last message of a prompt says.
func lastMessage(prompt string) string {
	parts := strings.Split(prompt, "<|im_start|>")
	if len(parts) < 2 {
		return prompt
	}
	_, text, _ := strings.Cut(parts[len(parts)-2], "\n")
	text, _, _ = strings.Cut(text, end)
	return text
}
