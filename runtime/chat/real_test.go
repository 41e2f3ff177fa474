package chat_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/chat"
	"mlxcel/tests/testenv"
)

// conversations are in the shape that templates are given, so that Python's
// Jinja2 can render them as they stand.
var conversations = []struct{ name, vars string }{
	{"question", `{"messages": [{"role": "user", "content": "What is 2 + 2?"}], "add_generation_prompt": true}`},
	{"no generation prompt", `{"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": false}`},
	{"system", `{"messages": [{"role": "system", "content": " Be kind.\n"}, {"role": "user", "content": " Hi \n"}], "add_generation_prompt": true}`},
	{"empty system", `{"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}], "add_generation_prompt": true}`},
	{"turns", `{"messages": [{"role": "user", "content": "One"}, {"role": "assistant", "content": "1"}, {"role": "user", "content": "Deux é 世界 👍"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "'three' \"3\" <|im_end|>"}], "add_generation_prompt": true}`},
	{"ends with the assistant", `{"messages": [{"role": "user", "content": "One"}, {"role": "assistant", "content": "1"}], "add_generation_prompt": false}`},
	{"thinking kept", `{"messages": [{"role": "user", "content": "One"}, {"role": "assistant", "content": "1", "reasoning_content": "Hm.", "thinking": "Hm."}, {"role": "user", "content": "Two"}], "add_generation_prompt": true}`},
	{"thinking in the text", `{"messages": [{"role": "user", "content": "One"}, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\n1"}, {"role": "user", "content": "Two"}, {"role": "assistant", "content": "<think>\nHm, hm.\n</think>\n\n2"}], "add_generation_prompt": false}`},
	{"thinking off", `{"messages": [{"role": "user", "content": "One"}], "add_generation_prompt": true, "enable_thinking": false}`},
	{"thinking on", `{"messages": [{"role": "user", "content": "One"}], "add_generation_prompt": true, "enable_thinking": true, "reasoning_effort": "high"}`},
	{"tools", `{"messages": [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather?"}], "add_generation_prompt": true, "tools": ` + tools + `}`},
	{"tool calls", `{"messages": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2, "units": ["C", 1.0, null]}}}]}, {"role": "tool", "content": "{\"sun\": true}", "name": "weather", "tool_call_id": "call00001"}, {"role": "user", "content": "Thanks"}], "add_generation_prompt": true, "tools": ` + tools + `}`},
	{"two tool answers", `{"messages": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"city": "A"}}}, {"id": "call00002", "type": "function", "function": {"name": "weather", "arguments": {}}}]}, {"role": "tool", "content": "1", "name": "weather", "tool_call_id": "call00001"}, {"role": "tool", "content": "2", "name": "weather", "tool_call_id": "call00002"}], "add_generation_prompt": true, "tools": ` + tools + `}`},
	{"roles do not alternate", `{"messages": [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}], "add_generation_prompt": true}`},
	{"begins with the assistant", `{"messages": [{"role": "assistant", "content": "One"}, {"role": "user", "content": "Two"}], "add_generation_prompt": true}`},
	{"unknown role", `{"messages": [{"role": "narrator", "content": "Once"}], "add_generation_prompt": true}`},
	{"late system", `{"messages": [{"role": "user", "content": "One"}, {"role": "system", "content": "Two"}], "add_generation_prompt": true}`},
}

const tools = `[{"type": "function", "function": {"name": "weather", "description": "Tells the <weather> & more", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}, "days": {"type": "integer", "default": 1}, "units": {"type": "array", "items": {"type": "string", "enum": ["C", "F"]}}}, "required": ["city"]}}}]`

var now = time.Date(2026, 3, 5, 15, 4, 9, 0, time.UTC)

type rendering struct {
	Text   *string
	Error  string
	Raised bool
}

// oracle renders with Python's Jinja2 each of the conversations.
func oracle(t testing.TB, template string, special map[string]string) []rendering {
	t.Helper()
	type oracleCase struct {
		Template string         `json:"template"`
		Vars     map[string]any `json:"vars"`
	}
	var cases []oracleCase
	for _, c := range conversations {
		// The order of keys must reach Python as it stands.
		var raw map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(c.vars), &raw))
		vars := map[string]any{"tools": nil, "documents": nil}
		for k, v := range special {
			vars[k] = v
		}
		for k, v := range raw {
			vars[k] = v
		}
		cases = append(cases, oracleCase{template, vars})
	}
	job, err := json.Marshal(map[string]any{"now": now.Format("2006-01-02T15:04:05"), "cases": cases})
	require.NoError(t, err)
	cmd := exec.Command(testenv.Python(t), "jinja/testdata/oracle.py")
	cmd.Stdin = bytes.NewReader(job)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var results []rendering
	require.NoError(t, json.Unmarshal(out, &results))
	require.Len(t, results, len(cases))
	return results
}

// TestRealTemplates compares the prompts of real models' templates with those
// that Python makes. The variable MLXCEL_CHAT_TEMPLATES may name a folder with
// more of them (*.jinja).
func TestRealTemplates(t *testing.T) {
	type model struct {
		template string
		special  map[string]string
	}
	models := map[string]model{"smollm2": {ggufTemplate(t), map[string]string{"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}}}
	for name, folder := range testenv.Tokenizers(t) {
		config, err := os.ReadFile(filepath.Join(folder, "tokenizer_config.json"))
		require.NoError(t, err)
		var fields struct {
			ChatTemplate json.RawMessage `json:"chat_template"`
		}
		require.NoError(t, json.Unmarshal(config, &fields))
		source, err := chat.SelectTemplate(fields.ChatTemplate, "", false)
		if err != nil {
			require.ErrorIs(t, err, chat.ErrNoTemplate)
			t.Logf("%s has no chat template", name)
			continue
		}
		special, err := chat.SpecialTokens(config)
		require.NoError(t, err)
		models[name] = model{source, special}
	}
	require.GreaterOrEqual(t, len(models), 5)
	more, err := filepath.Glob(filepath.Join(os.Getenv("MLXCEL_CHAT_TEMPLATES"), "*.jinja"))
	require.NoError(t, err)
	for _, file := range more {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		models[filepath.Base(file)] = model{string(source), map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			tmpl, err := chat.New(m.template, m.special)
			require.NoError(t, err)
			for i, want := range oracle(t, m.template, m.special) {
				messages, opts := parseConversation(t, conversations[i].vars)
				got, err := tmpl.Render(messages, opts)
				switch {
				case want.Text != nil:
					require.NoError(t, err, conversations[i].name)
					require.Equal(t, *want.Text, got, conversations[i].name)
				case want.Raised:
					var raised *chat.TemplateError
					require.ErrorAs(t, err, &raised, conversations[i].name)
					require.Equal(t, want.Error, raised.Message)
				default:
					require.Error(t, err, "%s: Jinja2 says %s", conversations[i].name, want.Error)
				}
			}
		})
	}
}

func parseConversation(t testing.TB, vars string) ([]chat.Message, chat.Options) {
	t.Helper()
	var in struct {
		Messages            []chat.Message
		AddGenerationPrompt bool `json:"add_generation_prompt"`
		Tools               json.RawMessage
		EnableThinking      *bool  `json:"enable_thinking"`
		ReasoningEffort     string `json:"reasoning_effort"`
	}
	require.NoError(t, json.Unmarshal([]byte(vars), &in))
	opts := chat.Options{AddGenerationPrompt: in.AddGenerationPrompt, Tools: in.Tools, Now: now, Kwargs: map[string]any{}}
	if in.EnableThinking != nil {
		opts.Kwargs["enable_thinking"] = *in.EnableThinking
	}
	if in.ReasoningEffort != "" {
		opts.Kwargs["reasoning_effort"] = in.ReasoningEffort
	}
	return in.Messages, opts
}

// ggufTemplate reads the chat template from the default model's metadata: a key
// as length and text, the type 8 for a string, length and text.
func ggufTemplate(t testing.TB) string {
	t.Helper()
	f, err := os.Open(testenv.Model(t))
	require.NoError(t, err)
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 16<<20))
	require.NoError(t, err)
	key := []byte("tokenizer.chat_template")
	_, rest, found := bytes.Cut(head, key)
	require.True(t, found, "the GGUF has no chat template in its first 16 MiB")
	require.Equal(t, uint32(8), binary.LittleEndian.Uint32(rest))
	n := binary.LittleEndian.Uint64(rest[4:])
	return string(rest[12 : 12+n])
}
