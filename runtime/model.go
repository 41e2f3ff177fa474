package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"mlxcel/loader"
	"mlxcel/runtime/chat"
	"mlxcel/runtime/engine"
	"mlxcel/runtime/models"
	"mlxcel/runtime/tokenizer"
	"mlxcel/runtime/weights"
)

// ModelOptions size a model. The zero value suits a single user.
type ModelOptions struct {
	ContextTokens int // the longest prompt and answer together; 0: what the model was trained for
	Slots         int // requests that run at once; 0: 4. More wait
	Queue         int // requests that may wait; 0: any number. More get ErrQueueFull
	CacheTokens   int // tokens whose keys and values are kept, of running and ended requests together; 0: by the memory
	ChunkTokens   int // prompt tokens computed at once; 0: a good number for the device

	NoReuse bool // compute every prompt from its beginning

	// Progress, if not nil, is called while the weights are loaded, with bytes.
	Progress func(done, total int64)
}

// Model is a loaded model. Its methods may be called from several goroutines.
type Model struct {
	*source
	runtime *Runtime
	library *loader.Loaded
	engine  *engine.Engine
}

// LoadModel loads an MLX model folder or a GGUF file; an empty path is [DefaultModel].
func (r *Runtime) LoadModel(path string, o ModelOptions) (*Model, error) {
	if path == "" {
		var err error
		if path, err = DefaultModel(); err != nil {
			return nil, err
		}
	}
	s, err := openModel(path)
	if err != nil {
		return nil, err
	}
	tokenizer := make(chan error, 1) // is read while weights are
	go func() { tokenizer <- s.readTokenizer() }()
	m, err := r.load(s, o)
	if wrong := <-tokenizer; wrong != nil {
		if m != nil {
			_ = m.Close() // the first error says more
		}
		return nil, wrong
	}
	return m, err
}

// LoadRandom loads a model of a known size whose weights are made up, for benchmarks: "0.6b", "4b", "8b" and "30b-a3b"
// are Qwen3's. bits is 4, 8, or 16 for bf16. It takes token ids only.
func (r *Runtime) LoadRandom(shape string, bits int, o ModelOptions) (*Model, error) {
	i := slices.IndexFunc(weights.Shapes, func(s weights.Shape) bool { return s.Name == shape })
	if i < 0 {
		return nil, fmt.Errorf("there is no model size %q to make up, only 0.6b, 4b, 8b and 30b-a3b", shape)
	}
	checkpoint, err := weights.Random(weights.Shapes[i], bits)
	if err != nil {
		return nil, err
	}
	s := &source{checkpoint: checkpoint}
	if s.model, err = models.Open(checkpoint.Config, checkpoint); err != nil {
		return nil, err
	}
	return r.load(s, o)
}

func (r *Runtime) load(s *source, o ModelOptions) (*Model, error) {
	e, library, err := r.start(s, engine.Options{
		MaxTokens: o.ContextTokens, Slots: o.Slots, Queue: o.Queue, CacheTokens: o.CacheTokens, NoReuse: o.NoReuse,
		Chunk: o.ChunkTokens, Progress: o.Progress,
	})
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", cmp.Or(s.checkpoint.Path, s.checkpoint.Name), err)
	}
	m := &Model{s, r, library, e}
	if err := r.add(m); err != nil {
		e.Close()
		return nil, err
	}
	return m, nil
}

// Close ends running requests, frees the model and waits until that is done.
func (m *Model) Close() error {
	m.engine.Close()
	m.runtime.remove(m)
	return nil
}

// Name is the base name of the model's folder or file.
func (m *Model) Name() string { return m.checkpoint.Name }

// Library returns the library that the model runs on.
func (m *Model) Library() Library { return describe(m.library) }

// Facts returns sizes, the device and the time to load.
func (m *Model) Facts() Facts { return m.engine.Facts() }

// Memory returns the memory that the device uses for arrays, of all models of the process together.
func (m *Model) Memory() (Memory, error) { return m.engine.Memory() }

// Stats returns how things stood after the last step. It does not wait.
func (m *Model) Stats() Stats { return m.engine.Stats() }

// Broken is closed when the device is lost and the model can serve nothing more; then Err says why.
func (m *Model) Broken() <-chan struct{} { return m.engine.Broken() }

// Err is why the model is broken, nil while it is not.
func (m *Model) Err() error { return m.engine.Err() }

// Stages says how the library runs a step of so many tokens, of which the last one gets logits; a line a stage.
func (m *Model) Stages(tokens int) (string, error) { return m.engine.Stages(tokens) }

// EOS returns the tokens that end an answer.
func (m *Model) EOS() []int32 { return slices.Clone(m.eos) }

// HasTokenizer reports whether the model takes and gives text.
func (m *Model) HasTokenizer() bool { return m.tokenizer != nil }

// HasChatTemplate reports whether the model can chat.
func (m *Model) HasChatTemplate() bool { return m.chat.exists() }

// ChatTemplate returns the source of the chat template, for conversations with tools or without; "" if there is none.
func (m *Model) ChatTemplate(tools bool) (string, error) {
	text, err := m.chat.source(tools)
	if errors.Is(err, chat.ErrNoTemplate) {
		return "", nil
	}
	return text, err
}

// Reasoning returns the markers that the template puts around reasoning, false if it knows none.
func (m *Model) Reasoning(tools bool) (chat.Markers, bool) {
	t, err := m.chat.get(tools)
	if err != nil {
		return chat.Markers{}, false
	}
	return t.Reasoning()
}

// SpecialToken returns the text of a special token by the name that templates have for it, such as "bos_token"; "" if
// the model has none.
func (m *Model) SpecialToken(name string) string { return m.chat.special[name] }

// Tokenizer returns the model's tokenizer, nil if it has none.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tokenizer }

var errNoTokenizer = errors.New("the model has no tokenizer, so it takes token ids only: put its tokenizer.json beside it")
