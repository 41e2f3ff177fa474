package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/server/servertest"
)

// complete sends a completion, whole and streamed, and returns the texts and reasons, which must be the same both times.
func (f *fixture) completeBoth(t *testing.T, body string) (texts []string, answer completion) {
	t.Helper()
	status, text := f.post(t, "/v1/completions", body)
	require.Equal(t, 200, status, text)
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	logprobs := []legacyLogprobs{}
	for i, c := range answer.Choices {
		require.Equal(t, i, c.Index)
		texts = append(texts, c.Text+"|"+*c.Finish)
		if c.Logprobs != nil {
			logprobs = append(logprobs, *c.Logprobs)
		}
	}
	_, text = f.post(t, "/v1/completions", strings.TrimSuffix(body, "}")+`,"stream":true,"stream_options":{"include_usage":true}}`)
	events := readEvents(t, text)
	require.Equal(t, "[DONE]", events[len(events)-1].data)
	streamed := make([]string, len(texts))
	joined := make([]legacyLogprobs, len(logprobs))
	var last *usage
	for _, e := range events[:len(events)-1] {
		var chunk completion
		require.NoError(t, json.Unmarshal([]byte(e.data), &chunk))
		last = chunk.Usage
		for _, c := range chunk.Choices {
			streamed[c.Index] += c.Text
			if c.Finish != nil {
				streamed[c.Index] += "|" + *c.Finish
			}
			if c.Logprobs != nil {
				j := &joined[c.Index]
				j.Tokens, j.Logprobs = append(j.Tokens, c.Logprobs.Tokens...), append(j.Logprobs, c.Logprobs.Logprobs...)
				j.Top, j.Offsets = append(j.Top, c.Logprobs.Top...), append(j.Offsets, c.Logprobs.Offsets...)
			}
		}
	}
	require.Equal(t, texts, streamed)
	require.Equal(t, logprobs, joined[:len(logprobs)])
	require.Equal(t, answer.Usage.TotalTokens, last.TotalTokens)
	return texts, answer
}

func TestCompletions(t *testing.T) {
	f := start(t, func(_ *Options, m *servertest.Model) {
		m.Script = func(prompt string, r runtime.Request) servertest.Answer {
			return servertest.Answer{Text: fmt.Sprintf("<%s %d>", prompt, r.Sampling.Seed)}
		}
	})
	for _, test := range []struct {
		name, body string
		want       []string
	}{
		{"string", `{"prompt":"a","seed":1}`, []string{"<a 1>|stop"}},
		{"strings", `{"prompt":["a","世"],"seed":1}`, []string{"<a 1>|stop", "<世 2>|stop"}},
		{"tokens", `{"prompt":[97,98],"seed":1}`, []string{"<ab 1>|stop"}},
		{"lists of tokens", `{"prompt":[[97],[98,99]],"seed":1}`, []string{"<a 1>|stop", "<bc 2>|stop"}},
		{"choices", `{"prompt":["a","b"],"n":2,"seed":1}`, []string{"<a 1>|stop", "<a 2>|stop", "<b 3>|stop", "<b 4>|stop"}},
		{"echo", `{"prompt":"a世","echo":true,"seed":1}`, []string{"a世<a世 1>|stop"}},
		{"echo of tokens", `{"prompt":[97],"echo":true,"seed":1}`, []string{"a<a 1>|stop"}},
		{"limit", `{"prompt":"abcdefghijklmnopqrstuvwxyz"}`, []string{"<abcdefghijklmno|length"}},
		{"own limit", `{"prompt":"a","max_tokens":3}`, []string{"<a |length"}},
		{"stop text", `{"prompt":"ab","stop":"b","best_of":1,"suffix":""}`, []string{"<a|stop"}},
		{"log-probabilities", `{"prompt":"a","logprobs":2,"seed":1}`, []string{"<a 1>|stop"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			texts, answer := f.completeBoth(t, test.body)
			require.Equal(t, test.want, texts)
			require.Equal(t, "text_completion", answer.Object)
			if test.name == "log-probabilities" {
				p := answer.Choices[0].Logprobs
				require.Equal(t, []string{"<", "a", " ", "1", ">"}, p.Tokens)
				require.Equal(t, []int{0, 1, 2, 3, 4}, p.Offsets)
				require.Equal(t, []float64{-0.5, -1, -1.5, -2, -2.5}, p.Logprobs)
				require.Equal(t, map[string]float64{"<": -0.5, "=": -1.5}, p.Top[0])
			}
		})
	}
	_, answer := f.completeBoth(t, `{"prompt":["ab","cde"],"n":2,"seed":1}`)
	require.Equal(t, 2+3, answer.Usage.PromptTokens, "each prompt counts once")
}
