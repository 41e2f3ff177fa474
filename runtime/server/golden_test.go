package server

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/server/servertest"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// TestTranscripts compares whole streams, byte for byte, with those in testdata/transcripts.
func TestTranscripts(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"hi"}],"stream":true`
	for _, c := range []struct {
		name, path, body string
		answer           servertest.Answer
	}{
		{"chat", "/v1/chat/completions", `{` + messages + `}`, servertest.Answer{Text: "Hé!"}},
		{"chat-usage", "/v1/chat/completions", `{` + messages + `,"stream_options":{"include_usage":true},"max_tokens":2}`, servertest.Answer{Text: "abc"}},
		{"chat-choices", "/v1/chat/completions", `{` + messages + `,"n":1,"stop":"c"}`, servertest.Answer{Text: "abcd"}},
		{"chat-logprobs", "/v1/chat/completions", `{` + messages + `,"logprobs":true,"top_logprobs":2}`, servertest.Answer{Text: "a"}},
		{"chat-reasoning", "/v1/chat/completions", `{` + messages + `}`, servertest.Answer{Text: "<think>\nHm\n</think>\n\nA"}},
		{
			"chat-calls", "/v1/chat/completions", `{` + messages + `,` + weather + `}`,
			servertest.Answer{Text: "Ok.\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"a\":1}}</tool_call>\n<tool_call>{\"name\":\"b\"}</tool_call>"},
		},
		{"chat-error", "/v1/chat/completions", `{` + messages + `}`, servertest.Answer{Text: "a", Err: errors.New("the device is lost")}},
		{"completion", "/v1/completions", `{"prompt":"1 ","echo":true,"stream":true,"stream_options":{"include_usage":true}}`, servertest.Answer{Text: "2"}},
		{"completion-logprobs", "/v1/completions", `{"prompt":"1 ","stream":true,"logprobs":1}`, servertest.Answer{Text: "2"}},
		{"responses", "/v1/responses", `{"input":"hi","stream":true,"instructions":"Be brief.","metadata":{"a":"b"}}`, servertest.Answer{Text: "Hé"}},
		{
			"responses-reasoning-calls", "/v1/responses", `{"input":"hi","stream":true,"tools":[{"type":"function","name":"weather"}]}`,
			servertest.Answer{Text: "<think>Hm</think>Ok.<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>"},
		},
		{"responses-limit", "/v1/responses", `{"input":"hi","stream":true,"max_output_tokens":1}`, servertest.Answer{Text: "ab"}},
		{"responses-error", "/v1/responses", `{"input":"hi","stream":true}`, servertest.Answer{Text: "a", Err: errors.New("the device is lost")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := start(t, func(_ *Options, m *servertest.Model) {
				m.Script = func(string, runtime.Request) servertest.Answer { return c.answer }
			})
			status, text := f.post(t, c.path, c.body)
			require.Equal(t, 200, status)
			text = "POST " + c.path + "\n" + c.body + "\n\n" + text
			file := filepath.Join("testdata", "transcripts", c.name+".txt")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), text)
		})
	}
}
