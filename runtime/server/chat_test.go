package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/server/servertest"
)

// joined is a chat's answer put together, from one object or from a stream.
type joined struct {
	role, content, reasoning, finish string
	calls                            []string
	tokens                           []string // of logprobs
}

// ask sends a chat, whole and streamed, and returns the choices, which must be the same both times.
func (f *fixture) ask(t *testing.T, body string) []joined {
	t.Helper()
	status, text := f.post(t, "/v1/chat/completions", body)
	require.Equal(t, 200, status, text)
	var whole chatAnswer
	require.NoError(t, json.Unmarshal([]byte(text), &whole))
	var choices []joined
	for i, c := range whole.Choices {
		require.Equal(t, i, c.Index)
		j := joined{role: c.Message.Role, reasoning: c.Message.Reasoning, finish: *c.Finish}
		if c.Message.Content != nil {
			j.content = *c.Message.Content
		} else {
			require.NotEmpty(t, c.Message.ToolCalls, "content is null only beside calls")
		}
		for _, call := range c.Message.ToolCalls {
			require.NotEmpty(t, call.ID)
			require.Equal(t, "function", call.Type)
			j.calls = append(j.calls, call.Function.Name+call.Function.Arguments)
		}
		j.addTokens(c.Logprobs)
		choices = append(choices, j)
	}
	usage := whole.Usage
	require.Equal(t, usage.TotalTokens, usage.PromptTokens+usage.CompletionTokens)

	status, text = f.post(t, "/v1/chat/completions", strings.TrimSuffix(body, "}")+`,"stream":true,"stream_options":{"include_usage":true}}`)
	require.Equal(t, 200, status, text)
	streamed, last := joinChunks(t, text, len(choices))
	require.Equal(t, choices, streamed)
	require.Equal(t, usage.CompletionTokens, last.CompletionTokens)
	return choices
}

func (j *joined) addTokens(list *logprobList) {
	if list != nil {
		for _, p := range list.Content {
			j.tokens = append(j.tokens, p.Token)
		}
	}
}

// joinChunks puts a stream together, checking its order on the way.
func joinChunks(t *testing.T, text string, n int) ([]joined, *usage) {
	t.Helper()
	events := readEvents(t, text)
	require.Equal(t, "[DONE]", events[len(events)-1].data)
	choices := make([]joined, n)
	var last *usage
	for _, e := range events[:len(events)-1] {
		var chunk chatAnswer
		require.NoError(t, json.Unmarshal([]byte(e.data), &chunk), e.data)
		require.Equal(t, "chat.completion.chunk", chunk.Object)
		require.Nil(t, last, "usage comes last")
		last = chunk.Usage
		for _, c := range chunk.Choices {
			j := &choices[c.Index]
			require.Empty(t, j.finish, "nothing comes behind the end of a choice")
			if c.Delta.Role != "" {
				require.Empty(t, j.role+j.content)
				j.role = c.Delta.Role
			}
			require.NotEmpty(t, j.role, "the role comes first")
			if c.Delta.Content != nil {
				j.content += *c.Delta.Content
			}
			j.reasoning += c.Delta.Reasoning
			for _, call := range c.Delta.ToolCalls {
				if call.ID != "" {
					require.Equal(t, len(j.calls), *call.Index)
					j.calls = append(j.calls, call.Function.Name)
				}
				j.calls[*call.Index] += call.Function.Arguments
			}
			j.addTokens(c.Logprobs)
			if c.Finish != nil {
				j.finish = *c.Finish
			}
		}
	}
	return choices, last
}

const weather = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]`

// Streamed answers are whole answers, byte for byte.
func TestChatAnswers(t *testing.T) {
	call := func(name, arguments string) string {
		return fmt.Sprintf("<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>", name, arguments)
	}
	for _, test := range []struct {
		name, says, fields string
		want               joined
	}{
		{"text", "Hello!", "", joined{content: "Hello!", finish: "stop"}},
		{"nothing", "", "", joined{finish: "stop"}},
		{"characters of several bytes", "é 世界 👍🏽 \u0000 <b>&", "", joined{content: "é 世界 👍🏽 \u0000 <b>&", finish: "stop"}},
		{"white space", " \n a \n ", "", joined{content: " \n a \n ", finish: "stop"}},
		{"stop text", "one two three", `,"stop":["three","two"]`, joined{content: "one ", finish: "stop"}},
		{"stop text that does not come", "one tw", `,"stop":"two"`, joined{content: "one tw", finish: "stop"}},
		{"stop text within a character", "a世b", `,"stop":"世"`, joined{content: "a", finish: "stop"}},
		{"limit", "abcdef", `,"max_tokens":3`, joined{content: "abc", finish: "length"}},
		{"limit under its new name", "abcdef", `,"max_tokens":5,"max_completion_tokens":3`, joined{content: "abc", finish: "length"}},
		{"limit within a character", "a世", `,"max_tokens":2`, joined{content: "a\uFFFD", finish: "length"}},
		{"reasoning", "<think>\nHm, 世.\n</think>\n\nYes.", "", joined{content: "Yes.", reasoning: "Hm, 世.", finish: "stop"}},
		{"reasoning without end", "<think>Hm", "", joined{reasoning: "Hm", finish: "stop"}},
		{"no reasoning", "a <think>b</think>", "", joined{content: "a <think>b</think>", finish: "stop"}},
		{"call", call("weather", `{"city": "Paris"}`), "," + weather, joined{finish: "tool_calls", calls: []string{`weather{"city": "Paris"}`}}},
		{
			"reasoning, text and calls", "<think>x</think>\nI look.\n" + call("a", "{}") + "\n" + call("b", `{"c":"}"}`), "," + weather,
			joined{reasoning: "x", content: "I look.", finish: "tool_calls", calls: []string{`a{}`, `b{"c":"}"}`}},
		},
		{"one call of two", call("a", "{}") + call("b", "{}"), "," + weather + `,"parallel_tool_calls":false`, joined{finish: "tool_calls", calls: []string{`a{}`}}},
		{"malformed call", "<tool_call>{oops}</tool_call>", "," + weather, joined{content: "<tool_call>{oops}</tool_call>", finish: "stop"}},
		{"call cut off", call("weather", `{"city": "Paris"}`), "," + weather + `,"max_tokens":8`, joined{content: "<tool_call>\n{\"name\""[:18], finish: "length"}},
		{"no calls where none are wanted", call("a", "{}"), "," + weather + `,"tool_choice":"none"`, joined{content: call("a", "{}"), finish: "stop"}},
		{"no calls without tools", call("a", "{}"), "", joined{content: call("a", "{}"), finish: "stop"}},
		{"log-probabilities", "a世", `,"logprobs":true,"top_logprobs":2`, joined{content: "a世", finish: "stop", tokens: []string{"a", "\uFFFD", "\uFFFD", "\uFFFD"}}},
		{"log-probabilities of content only", "<think>x</think>yz", `,"logprobs":true`, joined{content: "yz", reasoning: "x", finish: "stop", tokens: []string{"y", "z"}}},
		{"log-probabilities before a stop text", "a.STOP", `,"logprobs":true,"stop":"STOP"`, joined{content: "a.", finish: "stop", tokens: []string{"a", "."}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := start(t, says(test.says))
			test.want.role = "assistant"
			got := f.ask(t, `{"messages":[{"role":"user","content":"hi"}]`+test.fields+`}`)
			require.Equal(t, []joined{test.want}, got)
		})
	}
}

func TestReasoningLeftInPlace(t *testing.T) {
	f := start(t, func(o *Options, m *servertest.Model) {
		o.KeepReasoning = true
		says("<think>x</think>y")(o, m)
	})
	got := f.ask(t, `{"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, "<think>x</think>y", got[0].content)
}

// Special tokens that calls are written with are seen, though they are left out of text otherwise.
func TestCallsWithSpecialTokens(t *testing.T) {
	for says, source := range map[string]string{
		`[TOOL_CALLS]weather[ARGS]{"city": "Paris"}`:                              "{# [TOOL_CALLS] #}" + servertest.Template,
		`<|python_tag|>{"name": "weather", "parameters": {"city": "Paris"}}`:      strings.ReplaceAll(servertest.Template, "<tool_call>", "<|python_tag|>"),
		`[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris"}}]`:       "{# [TOOL_CALLS] #}" + servertest.Template,
		`{"name": "weather", "parameters": {"city": "Paris"}}`:                    strings.ReplaceAll(servertest.Template, "<tool_call>", "<|python_tag|>"),
		`<tool_call>{"name":"weather","arguments":{"city": "Paris"}}</tool_call>`: servertest.Template,
	} {
		f := start(t, func(o *Options, m *servertest.Model) {
			m.Source = source
			m.Script = func(string, runtime.Request) servertest.Answer { return servertest.Answer{Text: says} }
		})
		got := f.ask(t, `{"messages":[{"role":"user","content":"hi"}],`+weather+`}`)
		require.Equal(t, []joined{{role: "assistant", finish: "tool_calls", calls: []string{`weather{"city": "Paris"}`}}}, got, says)
		if strings.HasPrefix(says, "[") {
			_, text := f.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],`+weather+`}`)
			require.Regexp(t, `"id":"[a-zA-Z0-9]{9}"`, text, "the ids that Mistral's templates take")
		}
	}
}

// Every field arrives at the model.
func TestChatFields(t *testing.T) {
	f := start(t, nil)
	f.ask(t, `{"messages":[{"role":"user","content":"hi"}],"max_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,
		"frequency_penalty":0.25,"presence_penalty":-0.5,"repetition_penalty":1.1,"repeat_last_n":32,"seed":42,"stop":["x","y"],
		"logit_bias":{"65":-100,"66":2.5},"logprobs":true,"top_logprobs":5,"ignore_eos":true}`)
	r := f.model.Last()
	r.Tokens = nil
	require.Equal(t, runtime.Request{
		MaxTokens: 9, Stop: []string{"x", "y"}, IgnoreEOS: true, Logprobs: true, TopLogprobs: 5,
		Sampling: runtime.Sampling{
			Temperature: 0.5, TopP: 0.9, TopK: 40, MinP: 0.1, FrequencyPenalty: 0.25, PresencePenalty: -0.5, RepetitionPenalty: 1.1,
			PenaltyWindow: 32, Seed: 42, LogitBias: map[int32]float64{65: -100, 66: 2.5},
		},
	}, r)
}

func TestChatDefaults(t *testing.T) {
	f := start(t, func(o *Options, _ *servertest.Model) {
		o.Sampling = &runtime.Sampling{Temperature: 0.3, TopK: 7}
		o.MaxTokens = 11
	})
	f.ask(t, `{"messages":[{"role":"user","content":"hi"}]}`)
	first := f.model.Last()
	require.Equal(t, 0.3, first.Sampling.Temperature)
	require.Equal(t, 7, first.Sampling.TopK)
	require.Equal(t, 11, first.MaxTokens)
	f.ask(t, `{"messages":[{"role":"user","content":"hi"}]}`)
	require.NotEqual(t, first.Sampling.Seed, f.model.Last().Sampling.Seed, "every request has a seed of its own")
}

// The template gets roles, parts, tools and variables.
func TestChatPrompt(t *testing.T) {
	f := start(t, nil)
	for _, test := range []struct{ name, body, want string }{
		{
			"roles", `{"messages":[{"role":"developer","content":"be"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
				{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
				{"role":"tool","tool_call_id":"1","content":"r"}]}`,
			"<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nab<|im_end|>\n" +
				"<|im_start|>assistant\n<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call><|im_end|>\n<|im_start|>tool\nr<|im_end|>\n<|im_start|>assistant\n",
		},
		{
			"tools", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
			"<|im_start|>system\nTools: [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]\n",
		},
		{"no tools", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"}`, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"},
		{"variables", `{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"enable_thinking":false}}`, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"},
		{"effort", `{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"none"}`, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.ask(t, test.body)
			prompt := f.model.Prompt(f.model.Last())
			require.True(t, strings.HasPrefix(prompt, test.want), prompt)
			status, text := f.post(t, "/apply-template", test.body)
			require.Equal(t, 200, status)
			require.Equal(t, prompt, parsed(t, text)["prompt"])
		})
	}
}

// Several choices differ, each by a seed of its own, and the prompt counts once.
func TestChatChoices(t *testing.T) {
	f := start(t, func(_ *Options, m *servertest.Model) {
		m.Script = func(_ string, r runtime.Request) servertest.Answer {
			return servertest.Answer{Text: fmt.Sprint("seed ", r.Sampling.Seed)}
		}
	})
	got := f.ask(t, `{"messages":[{"role":"user","content":"hi"}],"n":3,"seed":5}`)
	for i, want := range []string{"seed 5", "seed 6", "seed 7"} {
		require.Equal(t, want, got[i].content)
	}
	_, text := f.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"n":3,"seed":5}`)
	usage := parsed(t, text)["usage"].(map[string]any)
	require.EqualValues(t, len(f.model.Last().Tokens), usage["prompt_tokens"])
	require.EqualValues(t, 3*len("seed 5.") /* the end counts too */, usage["completion_tokens"])
	require.EqualValues(t, len(f.model.Last().Tokens)-1, usage["prompt_tokens_details"].(map[string]any)["cached_tokens"])
}

func TestReasoningTokensCount(t *testing.T) {
	f := start(t, says("<think>abc</think>de"))
	_, text := f.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`)
	details := parsed(t, text)["usage"].(map[string]any)["completion_tokens_details"].(map[string]any)
	require.EqualValues(t, 4, details["reasoning_tokens"], "the opening marker included")
}

// An error of the model is an answer with a status, or an event when the stream has begun.
func TestChatErrors(t *testing.T) {
	f := start(t, func(_ *Options, m *servertest.Model) {
		m.Script = func(prompt string, _ runtime.Request) servertest.Answer {
			return servertest.Answer{Text: "abc", Err: errors.New("the device is on fire"), Panic: strings.Contains(prompt, "bug")}
		}
	})
	for content, want := range map[string]string{"hi": "the device is on fire", "bug": "internal error: a bug of the model"} {
		body := `{"messages":[{"role":"user","content":"` + content + `"}]`
		status, text := f.post(t, "/v1/chat/completions", body+`}`)
		require.Equal(t, 500, status)
		e := parsed(t, text)["error"].(map[string]any)
		require.Equal(t, "server_error", e["type"])
		require.Contains(t, e["message"], want)

		status, text = f.post(t, "/v1/chat/completions", body+`,"stream":true}`)
		require.Equal(t, 200, status)
		events := readEvents(t, text)
		require.Equal(t, "[DONE]", events[len(events)-1].data)
		require.Contains(t, events[len(events)-2].data, want)
	}
	_, text := f.get(t, "/metrics")
	require.Contains(t, text, `mlxcel_http_requests_total{route="/v1/chat/completions",code="500"} 4`)
}

func TestChatWithoutTemplate(t *testing.T) {
	f := start(t, func(_ *Options, m *servertest.Model) { m.Source = "" })
	status, text := f.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, 400, status)
	require.Contains(t, text, "use /v1/completions")
}

func TestTemplateThatRefuses(t *testing.T) {
	f := start(t, func(_ *Options, m *servertest.Model) { m.Source = `{{ raise_exception("roles must alternate") }}` })
	status, text := f.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, 400, status)
	require.Contains(t, text, "roles must alternate")
}

// A stream's first bytes come before the model has begun, and comments come while it is silent.
func TestStreamIsKeptAlive(t *testing.T) {
	f := start(t, func(o *Options, m *servertest.Model) {
		o.KeepAlive = 20 * time.Millisecond
		m.Script = func(string, runtime.Request) servertest.Answer {
			return servertest.Answer{Text: "a", Prefill: 150 * time.Millisecond}
		}
	})
	for _, request := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"stream":true}`},
		{"/v1/completions", `{"prompt":"hi","stream":true}`},
		{"/v1/responses", `{"input":"hi","stream":true}`},
	} {
		_, header, text := f.send(t, "POST", request.path, request.body, nil)
		require.Equal(t, "text/event-stream", header.Get("Content-Type"))
		require.GreaterOrEqual(t, strings.Count(text, ": keep-alive\n\n"), 3, text)
		require.NotEmpty(t, readEvents(t, text))
	}
}
