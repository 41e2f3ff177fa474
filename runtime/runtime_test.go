package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

func open(t testing.TB) *Runtime {
	rt, err := Open(Options{Bundle: testenv.Bundle(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	return rt
}

func load(t testing.TB, rt *Runtime, path string, o ModelOptions) *Model {
	m, err := rt.LoadModel(path, o)
	require.NoError(t, err)
	return m
}

func tiny(name string) string {
	return filepath.Join(testenv.Root(), "tests", "goldens", "tiny", name)
}

func collect(t testing.TB, m *Model, r Request) (text string, tokens []int32, s *Summary) {
	for p, err := range m.Generate(t.Context(), r) {
		require.NoError(t, err)
		text += p.Text
		if p.Summary != nil {
			s = p.Summary
			continue
		}
		tokens = append(tokens, p.Token)
	}
	require.NotNil(t, s)
	return text, tokens, s
}

// The default model answers a chat; what streams is what comes at once, and stop texts and end tokens end it.
func TestRealModel(t *testing.T) {
	rt := open(t)
	var progress []int64
	m := load(t, rt, testenv.Model(t), ModelOptions{Progress: func(done, total int64) {
		progress = append(progress, done)
		require.LessOrEqual(t, done, total)
	}})
	require.NotEmpty(t, progress)
	require.IsNonDecreasing(t, progress)

	chat := Request{Messages: []Message{{Role: "user", Content: "What is the capital of France?"}}, MaxTokens: 30}
	text, tokens, s := collect(t, m, chat)
	require.Contains(t, text, "Paris")
	require.Equal(t, FinishStop, s.Finish)
	require.Equal(t, len(tokens), s.Tokens)
	require.Contains(t, m.EOS(), tokens[len(tokens)-1])
	require.Positive(t, s.PromptRate())
	require.Positive(t, s.DecodeRate())
	require.Equal(t, m.Tokenizer().Decode(tokens, true), text)

	whole, again, err := m.Text(t.Context(), chat)
	require.NoError(t, err)
	require.Equal(t, text, whole)
	require.Equal(t, s.PromptTokens-1, again.CachedTokens, "all but the last token are known")

	at := strings.Index(text, "Paris")
	chat.Stop = []string{"nowhere", "Paris"}
	stopped, _, s := collect(t, m, chat)
	require.Equal(t, text[:at], stopped)
	require.Equal(t, FinishStop, s.Finish)

	chat.Stop, chat.IgnoreEOS = nil, true
	longer, tokens, s := collect(t, m, chat)
	require.True(t, strings.HasPrefix(longer, text))
	require.Len(t, tokens, 30)
	require.Equal(t, FinishLength, s.Finish)

	// The second turn of a conversation computes only what is new.
	chat.IgnoreEOS, chat.MaxTokens = false, 4
	chat.Messages = append(chat.Messages, Message{Role: "assistant", Content: text}, Message{Role: "user", Content: "And of Italy?"})
	_, _, s = collect(t, m, chat)
	require.Greater(t, s.CachedTokens, s.PromptTokens/2)

	// A special token is left out of the text, unless it is asked for.
	end := m.EOS()[0]
	forced := Request{Messages: chat.Messages, MaxTokens: 2, IgnoreEOS: true, Sampling: Sampling{LogitBias: map[int32]float64{end: 1000}}}
	hidden, _, _ := collect(t, m, forced)
	require.Empty(t, hidden)
	forced.Visible = []int32{end}
	shown, _, _ := collect(t, m, forced)
	spelling, _ := m.Tokenizer().Token(end)
	require.Equal(t, spelling+spelling, shown)

	// Special tokens written out in a plain prompt count as such, and nothing is put around it.
	prompt, err := m.PromptTokens(Request{Prompt: "<|im_start|>user"})
	require.NoError(t, err)
	id, ok := m.Tokenizer().TokenID("<|im_start|>")
	require.True(t, ok)
	require.Equal(t, id, prompt[0])
	require.Len(t, prompt, 2)
}

// Several goroutines and two models at once.
func TestConcurrentUse(t *testing.T) {
	rt := open(t)
	a := load(t, rt, tiny("llama-f32"), ModelOptions{Slots: 2})
	b := load(t, rt, tiny("qwen3-f32-tied"), ModelOptions{})
	request := Request{Tokens: []int32{1, 2, 3}, MaxTokens: 20}
	_, wantA, _ := collect(t, a, request)
	_, wantB, _ := collect(t, b, request)
	require.NotEqual(t, wantA, wantB)
	var wg sync.WaitGroup
	for range 4 {
		for m, want := range map[*Model][]int32{a: wantA, b: wantB} {
			wg.Go(func() {
				var got []int32
				for p, err := range m.Generate(t.Context(), request) {
					if err != nil || p.Summary != nil {
						break
					}
					got = append(got, p.Token)
				}
				if !equal(want, got) {
					t.Errorf("%s: got %v, want %v", m.Name(), got, want)
				}
			})
		}
	}
	wg.Wait()
}

func equal(a, b []int32) bool { return string(bytesOf(a)) == string(bytesOf(b)) }

func bytesOf(a []int32) []byte {
	text, _ := json.Marshal(a)
	return text
}

func TestCancel(t *testing.T) {
	m := load(t, open(t), tiny("llama-f32"), ModelOptions{})
	var last Piece
	var lastErr error
	for try := 0; try < 20 && lastErr == nil; try++ { // on a busy machine the whole answer may be there before it is cancelled
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		for p, err := range m.Generate(ctx, Request{Tokens: []int32{1}}) {
			last, lastErr = p, err
			if n++; n == 3 {
				cancel()
			}
		}
	}
	require.ErrorIs(t, lastErr, context.Canceled)
	require.Equal(t, FinishCancelled, last.Summary.Finish)
	require.GreaterOrEqual(t, last.Summary.Tokens, 3)

	for range m.Generate(t.Context(), Request{Tokens: []int32{1}}) {
		break // leaving the loop cancels
	}
	require.NoError(t, m.Close())
	for _, err := range m.Generate(t.Context(), Request{Tokens: []int32{1}}) {
		require.ErrorIs(t, err, ErrClosed)
	}
}

func TestRequestErrors(t *testing.T) {
	rt := open(t)
	m := load(t, rt, tiny("llama-f32"), ModelOptions{ContextTokens: 16})
	for want, r := range map[string]Request{
		"the prompt is empty": {},
		"a request has more than one of Messages, Prompt and Tokens":                                                                        {Prompt: "a", Tokens: []int32{1}},
		"the model has no tokenizer, so it takes token ids only: put its tokenizer.json beside it":                                          {Prompt: "a"},
		"the prompt is too long: 16 tokens, and the context of 16 must hold the answer too: shorten it, or give the model a larger context": {Tokens: make([]int32, 16)},
		"token 5000 of the prompt is outside the vocabulary of 96: the tokenizer does not belong to the model":                              {Tokens: []int32{5000}},
		"temperature is -1, want 0 to 100": {Tokens: []int32{1}, Sampling: Sampling{Temperature: -1}},
	} {
		for p, err := range m.Generate(t.Context(), r) {
			require.EqualError(t, err, want)
			require.Nil(t, p.Summary)
		}
	}
	_, err := rt.LoadModel(tiny("llama-f32"), ModelOptions{ContextTokens: 1 << 30})
	require.ErrorContains(t, err, "a context of 1073741824 tokens is more than the")
	require.NoError(t, rt.Close())
	_, err = rt.LoadModel(tiny("llama-f32"), ModelOptions{})
	require.ErrorIs(t, err, ErrClosed)
}

// broken copies a tiny model and damages it.
func broken(t *testing.T, damage func(t *testing.T, dir string)) string {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(dir, os.DirFS(tiny("llama-f32"))))
	damage(t, dir)
	return dir
}

func edit(file string, f func([]byte) []byte) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		require.NoError(t, os.WriteFile(path, f(text), 0o644))
	}
}

func replaceText(old, new string) func([]byte) []byte {
	return func(text []byte) []byte {
		if !bytes.Contains(text, []byte(old)) {
			panic(old + " is not in the file")
		}
		return bytes.Replace(text, []byte(old), []byte(new), 1)
	}
}

// Every kind of broken model is refused with one sentence that names the file or the tensor.
func TestBrokenModels(t *testing.T) {
	rt := open(t)
	for name, c := range map[string]struct {
		damage func(*testing.T, string)
		want   []string
	}{
		"no config": {func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "config.json"))) }, []string{"config.json"}},
		"no weights": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
		}, []string{"safetensors"}},
		"truncated":        {edit("model.safetensors", func(b []byte) []byte { return b[:len(b)-100] }), []string{"model.safetensors", "download it again"}},
		"lying header":     {edit("model.safetensors", func(b []byte) []byte { copy(b, "\x00\x00\x00\x00\x00\x00\x00\x80"); return b }), []string{"model.safetensors"}},
		"missing tensor":   {edit("model.safetensors", replaceText("model.norm.weight", "model.nosy.weight")), []string{"model.norm.weight"}},
		"absurd number":    {edit("config.json", replaceText(`"num_hidden_layers": `, `"num_hidden_layers": 99999999`)), []string{"config.json", "num_hidden_layers"}},
		"unknown type":     {edit("config.json", replaceText(`"llama"`, `"parrot"`)), []string{"parrot", "llama, mistral, qwen2, qwen3, qwen3_moe"}},
		"wrong shape":      {edit("config.json", replaceText(`"intermediate_size": `, `"intermediate_size": 1`)), []string{"mlp.", "weight has shape"}},
		"config no JSON":   {edit("config.json", func([]byte) []byte { return []byte("hello") }), []string{"config.json"}},
		"broken tokenizer": {edit("tokenizer.json", func([]byte) []byte { return []byte(`{"model":{"type":"Nonsense","vocab":{}}}`) }), []string{"tokenizer.json", "Nonsense"}},
		"broken tokenizer config": {func(t *testing.T, dir string) {
			edit("tokenizer.json", func([]byte) []byte { return []byte(smallTokenizer) })(t, dir)
			edit("tokenizer_config.json", func([]byte) []byte { return []byte(`{`) })(t, dir)
		}, []string{"tokenizer_config.json"}},
		"broken generation config": {edit("generation_config.json", func([]byte) []byte { return []byte(`{"eos_token_id":"x"}`) }), []string{"generation_config.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := broken(t, c.damage)
			_, err := rt.LoadModel(path, ModelOptions{})
			require.Error(t, err)
			for _, w := range c.want {
				require.ErrorContains(t, err, w)
			}
			require.ErrorContains(t, err, path)
			require.NotContains(t, err.Error(), "\n")
			_, err = Inspect(path)
			require.Error(t, err)
		})
	}
	_, err := rt.LoadModel(filepath.Join(t.TempDir(), "nothing"), ModelOptions{})
	require.ErrorContains(t, err, "there is no model at")
	t.Setenv("MLXCEL_MODEL", filepath.Join(t.TempDir(), "nothing"))
	_, err = rt.LoadModel("", ModelOptions{})
	require.ErrorContains(t, err, "there is no model at")
}

// smallTokenizer knows the letters a to d.
const smallTokenizer = `{"added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,
	"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"d":3},"merges":[]}}`

// A template that refuses a chat, or is broken, gives its own words; plain text still works.
func TestTemplateErrors(t *testing.T) {
	rt := open(t)
	withTemplate := func(template string) *Model {
		return load(t, rt, broken(t, func(t *testing.T, dir string) {
			edit("tokenizer.json", func([]byte) []byte { return []byte(smallTokenizer) })(t, dir)
			if template != "" {
				edit("chat_template.jinja", func([]byte) []byte { return []byte(template) })(t, dir)
			}
		}), ModelOptions{})
	}
	chat := Request{Messages: []Message{{Role: "user", Content: "ab"}}, MaxTokens: 2}
	for template, want := range map[string]string{
		"": "the model has no chat template",
		"{{ raise_exception('only whispering is allowed') }}": "only whispering is allowed",
		"{% for %}": "chat template",
	} {
		m := withTemplate(template)
		require.Equal(t, template != "", m.HasChatTemplate())
		_, _, err := m.Text(t.Context(), chat)
		require.ErrorContains(t, err, want)
		_, s, err := m.Text(t.Context(), Request{Prompt: "abcd", MaxTokens: 2})
		require.NoError(t, err)
		require.Equal(t, 4, s.PromptTokens)
	}
}

func TestInspect(t *testing.T) {
	i, err := Inspect(testenv.Model(t))
	require.NoError(t, err)
	require.Equal(t, "llama", i.Family)
	require.Equal(t, "gguf", i.Format)
	require.EqualValues(t, 134_515_008, i.Parameters)
	require.Equal(t, map[string]int{"affine 4 bit, group 32": 210, "affine 8 bit, group 32": 1, "f32": 61}, i.Formats)
	require.True(t, i.HasTokenizer && i.HasTemplate)
	need, err := i.MemoryNeed()
	require.NoError(t, err)
	require.EqualValues(t, 1024*30*2*3*64*4, need.StatePer1k)
	text, err := i.Program(1, 1)
	require.NoError(t, err)
	require.Contains(t, text, "%0 = load_tokens(tokens, token_slots) i32[T]")
	_, err = i.Program(0, 1)
	require.Error(t, err)

	i, err = Inspect(tiny("llama-bf16-defaults"))
	require.NoError(t, err)
	require.False(t, i.HasTokenizer || i.HasTemplate)
}

func TestDefaultModel(t *testing.T) {
	t.Setenv("MLXCEL_MODEL", "/some/model")
	path, err := DefaultModel()
	require.NoError(t, err)
	require.Equal(t, "/some/model", path)
	t.Setenv("MLXCEL_MODEL", "")
	_, err = DefaultModel() // a test binary has no folder models beside it
	require.ErrorIs(t, err, ErrNoModel)
}
