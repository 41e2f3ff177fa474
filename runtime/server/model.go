package server

import (
	"context"
	"encoding/json"
	"iter"
	"strings"

	"mlxcel/runtime"
	"mlxcel/runtime/chat"
	"mlxcel/runtime/engine"
	"mlxcel/runtime/server/toolcall"
	"mlxcel/runtime/tokenizer"
)

// Model is what the server needs of a model; *runtime.Model is one, if it has a tokenizer. Its methods are called from
// many goroutines.
type Model interface {
	Name() string
	Facts() runtime.Facts
	Stats() engine.Stats
	Tokenizer() *tokenizer.Tokenizer // not nil
	EOS() []int32
	SpecialToken(name string) string
	ChatTemplate(tools bool) (string, error) // "" if there is none
	Reasoning(tools bool) (chat.Markers, bool)
	RenderChat(messages []runtime.Message, tools json.RawMessage, args map[string]any) (string, error)
	PromptTokens(runtime.Request) ([]int32, error)
	Generate(context.Context, runtime.Request) iter.Seq2[runtime.Piece, error]
	Embeds() error // nil if there are embeddings, or why not
	Embed(ctx context.Context, inputs [][]int32) ([][]float32, error)
	Broken() <-chan struct{} // closed when the model can serve nothing more
	Err() error              // why
}

// loaded is a model with what the server found out about it.
type loaded struct {
	Model
	id        string
	created   int64           // when it was handed over, in Unix seconds
	calls     toolcall.Format // that its template has
	developer bool            // its template knows the role "developer"
	vocab     int
	eos       map[int32]bool
}

func (s *Server) inspect(m Model) *loaded {
	// A broken template stands in the way of chats, and is told about there.
	template, _ := m.ChatTemplate(true)
	l := &loaded{
		Model: m, id: s.options.Name, created: s.now().Unix(), calls: toolcall.Detect(template),
		developer: strings.Contains(template, "developer"), vocab: m.Tokenizer().VocabSize(), eos: map[int32]bool{},
	}
	if l.id == "" {
		l.id = m.Name()
	}
	for _, id := range m.EOS() {
		l.eos[id] = true
	}
	return l
}

// markers are what stands around the model's reasoning; empty ones where it stays in the content.
func (s *Server) markers(l *loaded, tools bool) chat.Markers {
	if s.options.KeepReasoning {
		return chat.Markers{}
	}
	markers, _ := l.Reasoning(tools)
	return markers
}
