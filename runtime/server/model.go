package server

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"mlxcel/runtime"
	"mlxcel/runtime/chat"
	"mlxcel/runtime/server/toolcall"
	"mlxcel/runtime/tokenizer"
)

// Model is what the server needs of a model; *runtime.Model is one. Its methods are called from many goroutines.
type Model interface {
	Name() string
	Facts() runtime.Facts
	Tokenizer() *tokenizer.Tokenizer // not nil
	HasChatTemplate() bool
	EOS() []int32
	RenderChat(messages []runtime.Message, tools json.RawMessage, args map[string]any) (string, error)
	PromptTokens(runtime.Request) ([]int32, error)
	Generate(context.Context, runtime.Request) iter.Seq2[runtime.Piece, error]
}

// What a model may be able to do beside.
type (
	// templated tells the source of its chat template.
	templated interface {
		ChatTemplate(tools bool) (string, error)
	}
	// specialTokens knows special tokens by their name, such as "bos_token".
	specialTokens interface {
		SpecialToken(name string) string
	}
	// embedder turns a text into a vector.
	embedder interface {
		Embed(ctx context.Context, tokens []int32) ([]float32, error)
	}
	// breakable may find that it can serve nothing more. Broken is closed then, and Err says why.
	breakable interface {
		Broken() <-chan struct{}
		Err() error
	}
)

// loaded is a model with what the server found out about it.
type loaded struct {
	Model
	id        string
	created   int64 // when it was loaded, in Unix seconds
	template  string
	markers   chat.Markers // around reasoning; empty: none
	calls     toolcall.Format
	developer bool // the template knows the role "developer"
	vocab     int
	eos       map[int32]bool
}

func (s *Server) inspect(m Model) *loaded {
	l := &loaded{
		Model: m, id: s.options.Name, created: time.Now().Unix(), vocab: m.Tokenizer().VocabSize(), eos: map[int32]bool{},
	}
	if l.id == "" {
		l.id = m.Name()
	}
	for _, id := range m.EOS() {
		l.eos[id] = true
	}
	if t, ok := m.(templated); ok && m.HasChatTemplate() {
		l.template, _ = t.ChatTemplate(true) // a broken one stands in the way of chats, and is told about there
	}
	l.calls, l.markers, l.developer = l.forms()
	return l
}

// forms finds the form of tool calls and reasoning: by the template, or by the tokens that the model has.
func (l *loaded) forms() (toolcall.Format, chat.Markers, bool) {
	knows := func(token string) bool { _, ok := l.Tokenizer().TokenID(token); return ok }
	if t, err := chat.New(l.template, nil); err == nil {
		markers, _ := t.Reasoning()
		return toolcall.Detect(l.template), markers, containsWord(l.template, "developer")
	}
	var markers chat.Markers
	if knows(chat.ThinkMarkers.Open) {
		markers = chat.ThinkMarkers
	}
	for _, f := range []toolcall.Format{toolcall.Hermes, toolcall.Mistral, toolcall.Llama3} {
		if knows(f.Markers()[0]) {
			return f, markers, false
		}
	}
	return toolcall.Hermes, markers, false
}

// Stats are figures about the model's engine at one moment.
type Stats struct {
	Running, Waiting int         // requests
	Slots            []SlotStats // sequences that the engine can keep
	KVUsed, KVFree   int64       // pages of the key-value cache; 0, 0: unknown
	Steps            uint64      // since the start
	StepSequences    uint64      // sequences in all these steps together
	Preemptions      uint64
}

// SlotStats is about a sequence that the engine keeps.
type SlotStats struct {
	Busy   bool
	Tokens int // in its state
}
