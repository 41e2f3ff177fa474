package chat_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/chat"
)

const chatml = `{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}`

func newTemplate(t testing.TB, source string) *chat.Template {
	t.Helper()
	tmpl, err := chat.New(source, map[string]string{"bos_token": "<s>"})
	require.NoError(t, err)
	return tmpl
}

func TestNewErrors(t *testing.T) {
	_, err := chat.New(" \n", nil)
	require.ErrorIs(t, err, chat.ErrNoTemplate)
	require.ErrorContains(t, err, "--no-chat-template")
	_, err = chat.New("a\n{% if %}", nil)
	require.ErrorContains(t, err, "chat template: line 2: ")
}

func TestRenderErrors(t *testing.T) {
	user := []chat.Message{{Role: chat.User, Content: "hi"}}
	_, err := newTemplate(t, "{{ raise_exception('No ' ~ messages[0].role ~ ', please') }}").Render(user, chat.Options{})
	var raised *chat.TemplateError
	require.ErrorAs(t, err, &raised)
	require.Equal(t, "No user, please", raised.Message)

	_, err = newTemplate(t, "\n{{ nothing.here }}").Render(user, chat.Options{})
	require.EqualError(t, err, "chat template: line 2: 'nothing' is undefined")
	require.False(t, errors.As(err, &raised))

	tmpl := newTemplate(t, chatml)
	_, err = tmpl.Render(user, chat.Options{Tools: json.RawMessage("{")})
	require.ErrorContains(t, err, "tools: bad JSON")
	_, err = tmpl.Render(user, chat.Options{Tools: json.RawMessage("{}")})
	require.ErrorContains(t, err, "tools: not a JSON list")
	_, err = tmpl.Render(user, chat.Options{Kwargs: map[string]any{"x": make(chan int)}})
	require.ErrorContains(t, err, "variable x")
	_, err = tmpl.Render([]chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: "image_url"}}}}, chat.Options{})
	require.ErrorContains(t, err, "message 1: a message has a part that is no text")
	_, err = tmpl.Render([]chat.Message{{Role: chat.Assistant, ToolCalls: []chat.ToolCall{{Name: "f", Arguments: json.RawMessage("{")}}}}, chat.Options{})
	require.ErrorContains(t, err, `message 1: arguments of tool call "f": bad JSON`)
}

func TestRenderOptions(t *testing.T) {
	user := []chat.Message{{Role: chat.User, Content: "hi"}}
	tmpl := newTemplate(t, chatml)
	for _, c := range []struct {
		opts chat.Options
		want string
	}{
		{chat.Options{}, "<s><|im_start|>user\nhi<|im_end|>\n"},
		{chat.Options{AddGenerationPrompt: true}, "<s><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"},
		{chat.Options{AddGenerationPrompt: true, Kwargs: map[string]any{"enable_thinking": false}}, "<s><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think></think>"},
		{chat.Options{Kwargs: map[string]any{"bos_token": ""}}, "<|im_start|>user\nhi<|im_end|>\n"},
	} {
		got, err := tmpl.Render(user, c.opts)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	got, err := newTemplate(t, "{{ tools }} {{ documents }} {{ eos_token }}|{{ strftime_now('%Y') }}").Render(nil, chat.Options{Now: now})
	require.NoError(t, err)
	require.Equal(t, "None None |2026", got)
	got, err = newTemplate(t, "{% for t in tools %}{{ t | tojson }}{% endfor %}").Render(nil, chat.Options{Tools: json.RawMessage(`[{"z": 1, "a": 1.0}]`)})
	require.NoError(t, err)
	require.Equal(t, `{"z": 1, "a": 1.0}`, got)
}

func TestContentParts(t *testing.T) {
	parts := chat.Message{Role: chat.User, Parts: []chat.Part{{Type: "text", Text: "a"}, {Type: "text", Text: "b"}}}
	text := chat.Message{Role: chat.User, Content: "c"}
	withImage := chat.Message{Role: chat.User, Parts: []chat.Part{{Type: "image"}, {Type: "text", Text: "d"}}}
	onlyText := newTemplate(t, chatml)
	onlyParts := newTemplate(t, "{% for m in messages %}{% for p in m.content %}[{{ p.text if p.type == 'text' else p.type }}]{% endfor %}{% endfor %}")
	both := newTemplate(t, "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}")
	for _, c := range []struct {
		name     string
		tmpl     *chat.Template
		messages []chat.Message
		want     string
	}{
		{"joined for a template of strings", onlyText, []chat.Message{parts}, "<s><|im_start|>user\nab<|im_end|>\n"},
		{"kept for a template of parts", onlyParts, []chat.Message{parts}, "[a][b]"},
		{"made for a template of parts", onlyParts, []chat.Message{text}, "[c]"},
		{"other parts are passed on", onlyParts, []chat.Message{withImage}, "[image][d]"},
		{"both, parts", both, []chat.Message{parts}, "[a][b]"},
		{"both, text", both, []chat.Message{text}, "c"},
	} {
		got, err := c.tmpl.Render(c.messages, chat.Options{})
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, got, c.name)
	}
}

func TestToolCallArguments(t *testing.T) {
	tmpl := newTemplate(t, "{% for c in messages[0].tool_calls %}{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }};{% endfor %}")
	got, err := tmpl.Render([]chat.Message{{Role: chat.Assistant, ToolCalls: []chat.ToolCall{
		{ID: "1", Name: "a", Arguments: json.RawMessage(`{"z": 1, "a": 2}`)},
		{ID: "2", Name: "b", Arguments: json.RawMessage(`"{\"z\": 1, \"a\": 2}"`)},
		{ID: "3", Name: "c", Arguments: json.RawMessage(`"not json"`)},
		{ID: "4", Name: "d"},
	}}}, chat.Options{})
	require.NoError(t, err)
	require.Equal(t, `1 a {"z": 1, "a": 2};2 b {"z": 1, "a": 2};3 c "not json";4 d {};`, got)
}

func TestContinueFinalMessage(t *testing.T) {
	messages := []chat.Message{{Role: chat.User, Content: "hi"}, {Role: chat.Assistant, Content: "Well, "}}
	open := chat.Options{ContinueFinalMessage: true}
	got, err := newTemplate(t, chatml).Render(messages, open)
	require.NoError(t, err)
	require.Equal(t, "<s><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nWell, ", got)
	require.Equal(t, "Well, ", messages[1].Content, "the caller's messages stay")

	got, err = newTemplate(t, "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}").Render(messages, open)
	require.NoError(t, err)
	require.Equal(t, "[hi][Well,", got)

	_, err = newTemplate(t, "{{ messages[0].content }}").Render(messages, open)
	require.ErrorContains(t, err, "cannot be continued")
	_, err = newTemplate(t, chatml).Render(nil, open)
	require.ErrorContains(t, err, "no final message")
	_, err = newTemplate(t, chatml).Render(messages, chat.Options{ContinueFinalMessage: true, AddGenerationPrompt: true})
	require.ErrorContains(t, err, "exclude each other")
}

func TestMessageJSON(t *testing.T) {
	in := `[
		{"role": "user", "content": "a"},
		{"role": "user", "content": [{"type": "text", "text": "b"}], "name": "Bo"},
		{"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
		{"role": "tool", "content": "c", "tool_call_id": "1"}
	]`
	var messages []chat.Message
	require.NoError(t, json.Unmarshal([]byte(in), &messages))
	require.Equal(t, []chat.Message{
		{Role: "user", Content: "a"},
		{Role: "user", Parts: []chat.Part{{Type: "text", Text: "b"}}, Name: "Bo"},
		{Role: "assistant", ReasoningContent: "r", ToolCalls: []chat.ToolCall{{ID: "1", Name: "f", Arguments: json.RawMessage(`"{\"x\": 1}"`)}}},
		{Role: "tool", Content: "c", ToolCallID: "1"},
	}, messages)
	out, err := json.Marshal(messages)
	require.NoError(t, err)
	require.JSONEq(t, in, string(out))

	for bad, words := range map[string]string{
		`{"content": "a"}`:               `"role" is missing`,
		`{"role": "user", "content": 5}`: "neither a string nor a list",
		`{"role": 5}`:                    "message:",
		`{"role": "user", "content": "a", "tool_calls": 1}`: "message:",
	} {
		var m chat.Message
		require.ErrorContains(t, json.Unmarshal([]byte(bad), &m), words)
	}
}

func TestSelectTemplate(t *testing.T) {
	const list = `[{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]`
	for _, c := range []struct {
		field, file string
		tools       bool
		want        string
	}{
		{`"S"`, "", false, "S"},
		{`"S"`, "F", false, "F"},
		{``, "F", true, "F"},
		{list, "", false, "D"},
		{list, "", true, "T"},
		{`[{"name": "default", "template": "D"}]`, "", true, "D"},
		{`[{"name": "only", "template": "O"}]`, "", false, "O"},
	} {
		got, err := chat.SelectTemplate(json.RawMessage(c.field), c.file, c.tools)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, none := range []string{"", "null", `""`, "[]", " null "} {
		_, err := chat.SelectTemplate(json.RawMessage(none), "", false)
		require.ErrorIs(t, err, chat.ErrNoTemplate, none)
	}
	for bad, words := range map[string]string{
		"5":       "neither a string nor a list",
		`{"a":1}`: "neither a string nor a list",
		`"\u"`:    "chat_template",
		`[{"name": "a", "template": "A"}, {"name": "b", "template": "B"}]`: "only a, b",
	} {
		_, err := chat.SelectTemplate(json.RawMessage(bad), "", false)
		require.ErrorContains(t, err, words, bad)
		require.NotErrorIs(t, err, chat.ErrNoTemplate)
	}
}

func TestSpecialTokens(t *testing.T) {
	got, err := chat.SpecialTokens([]byte(`{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null, "model_max_length": 1e30}`))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"bos_token": "<s>", "eos_token": "</s>"}, got)
	_, err = chat.SpecialTokens([]byte(`{"bos_token": 1}`))
	require.ErrorContains(t, err, "bos_token")
	_, err = chat.SpecialTokens([]byte(`[`))
	require.ErrorContains(t, err, "tokenizer_config.json")
}

func TestReasoningMarkers(t *testing.T) {
	m, ok := newTemplate(t, "{% if false %}<think>{% endif %}").Reasoning()
	require.True(t, ok)
	require.Equal(t, chat.ThinkMarkers, m)
	m, ok = newTemplate(t, "{{ '[THINK]' }}").Reasoning()
	require.True(t, ok)
	require.Equal(t, chat.Markers{Open: "[THINK]", Close: "[/THINK]"}, m)
	_, ok = newTemplate(t, "{{ messages }}").Reasoning()
	require.False(t, ok)
}

// split pushes the text in pieces and returns the results put together.
func split(m chat.Markers, prompt string, pieces ...string) (reasoning, content string) {
	s := chat.NewSplitter(m, prompt)
	for _, p := range pieces {
		r, c := s.Push(p)
		reasoning, content = reasoning+r, content+c
	}
	r, c := s.Flush()
	return reasoning + r, content + c
}

func TestSplitter(t *testing.T) {
	for _, c := range []struct{ name, prompt, text, reasoning, content string }{
		{"plain", "", "Hello <b>", "", "Hello <b>"},
		{"leading blanks stay", "", "\n\n Hello", "", "\n\n Hello"},
		{"thinking", "", "<think>\nLet me see.\n\nYes.\n</think>\n\nHello", "Let me see.\n\nYes.", "Hello"},
		{"blanks before", "", "\n<think>a</think>b", "a", "b"},
		{"empty", "", "<think>\n\n</think>\n\nHello", "", "Hello"},
		{"opened by the prompt", "<|assistant|><think>\n", "Hm.\n</think>\nHello", "Hm.", "Hello"},
		{"closed by the prompt", "<|assistant|><think>\n\n</think>\n\n", "Hello </think>", "", "Hello </think>"},
		{"never closed", "", "<think>a b\n", "a b", ""},
		{"never closed, half a marker", "", "<think>a </thin", "a </thin", ""},
		{"half an opening marker", "", "<thin", "", "<thin"},
		{"almost an opening marker", "", "<thinner> x", "", "<thinner> x"},
		{"almost a closing marker", "", "<think>a </thinner> </</think>b", "a </thinner> </", "b"},
		{"marker later is content", "", "<think>a</think>b <think>c</think>", "a", "b <think>c</think>"},
		{"marker in the answer", "", "say <think>", "", "say <think>"},
		{"letters of many bytes", "", "<think>é世</think>👍é", "é世", "👍é"},
		{"nothing", "", "", "", ""},
		{"only blanks", "", " \n", "", " \n"},
		{"inner blanks", "", "<think>a \n b</think> \n c \n", "a \n b", "c \n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(pieces ...string) {
				r, content := split(chat.ThinkMarkers, c.prompt, pieces...)
				require.Equal(t, c.reasoning, r, "%q", pieces)
				require.Equal(t, c.content, content, "%q", pieces)
			}
			check(c.text)
			check(strings.Split(c.text, "")...)
			for i := range c.text {
				for j := i; j <= len(c.text); j++ {
					check(c.text[:i], c.text[i:j], c.text[j:])
				}
			}
		})
	}
	r, c := split(chat.Markers{}, "", "<think>a</think>b")
	require.Equal(t, "", r)
	require.Equal(t, "<think>a</think>b", c)
}

func TestSplitterStreams(t *testing.T) {
	s := chat.NewSplitter(chat.ThinkMarkers, "")
	for _, step := range []struct {
		piece, reasoning, content string
		within                    bool
	}{
		{"<thi", "", "", false},
		{"nk>\nI", "I", "", true},
		{" see", " see", "", true},
		{". \n", ".", "", true},
		{"</", "", "", true},
		{"think>\n", "", "", false},
		{"\nHel", "", "Hel", false},
		{"lo <", "", "lo <", false},
	} {
		r, c := s.Push(step.piece)
		require.Equal(t, step.reasoning, r, step.piece)
		require.Equal(t, step.content, c, step.piece)
		require.Equal(t, step.within, s.InReasoning(), step.piece)
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add("<think>a</think>b", uint8(3), uint8(9))
	f.Add(" <think> \n</thin</think> x", uint8(1), uint8(20))
	f.Fuzz(func(t *testing.T, text string, i, j uint8) {
		a := min(int(i), len(text))
		b := max(a, min(int(j), len(text)))
		// Half a character never reaches a splitter: the detokenizer holds it back.
		whole := strings.ToValidUTF8(text, "?")
		a, b = runeStart(whole, a), runeStart(whole, b)
		wantReasoning, wantContent := split(chat.ThinkMarkers, "", whole)
		reasoning, content := split(chat.ThinkMarkers, "", whole[:a], whole[a:b], whole[b:])
		require.Equal(t, wantReasoning, reasoning)
		require.Equal(t, wantContent, content)
		if !strings.HasPrefix(strings.TrimSpace(whole), "<think>") {
			require.Equal(t, whole, content)
		}
	})
}

// runeStart moves i to the start of the character that it is in.
func runeStart(s string, i int) int {
	i = min(i, len(s))
	for i > 0 && i < len(s) && s[i]&0xC0 == 0x80 {
		i--
	}
	return i
}

func FuzzMessageJSON(f *testing.F) {
	f.Add(`{"role": "user", "content": "a"}`)
	f.Add(`{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 1}"}}]}`)
	f.Add(`{"role": "user", "content": [{"type": "text", "text": "b"}]}`)
	tmpl := newTemplate(f, chatml+"{{ messages | tojson }}")
	f.Fuzz(func(t *testing.T, data string) {
		var m chat.Message
		if json.Unmarshal([]byte(data), &m) != nil {
			return
		}
		if _, err := json.Marshal(m); err != nil {
			t.Fatal(err)
		}
		_, _ = tmpl.Render([]chat.Message{m}, chat.Options{})
	})
}

// TestOwnTemplates renders the committed templates through the whole package.
func TestOwnTemplates(t *testing.T) {
	files, err := filepath.Glob("jinja/testdata/templates/*.jinja")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		tmpl := newTemplate(t, string(source))
		for _, c := range conversations {
			messages, opts := parseConversation(t, c.vars)
			text, err := tmpl.Render(messages, opts)
			var raised *chat.TemplateError
			if !errors.As(err, &raised) {
				require.NoError(t, err, "%s: %s", file, c.name)
				require.NotEmpty(t, text)
			}
		}
	}
}
