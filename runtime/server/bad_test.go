package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/server/servertest"
)

// bad are requests that are refused: with which status and type, and about which field.
var bad = []struct {
	path, body string
	status     int
	code       string
	param      string
	want       string // a part of the message
}{
	{"/v1/chat/completions", ``, 400, "invalid_json", "", "the body is empty"},
	{"/v1/chat/completions", `hello`, 400, "invalid_json", "", "not JSON"},
	{"/v1/chat/completions", `{"messages":[`, 400, "invalid_json", "", "not JSON"},
	{"/v1/chat/completions", `{"messages":[]} {}`, 400, "invalid_json", "", "not JSON"},
	{"/v1/chat/completions", `[]`, 400, "invalid_json", "", "the body is an array: want a JSON object"},
	{"/v1/chat/completions", `null`, 400, "invalid_json", "", "the body is null"},
	{"/v1/chat/completions", `"x"`, 400, "invalid_json", "", "the body is a string"},
	{"/v1/chat/completions", `{}`, 400, "missing_required_parameter", "messages", "want an array of messages"},
	{"/v1/chat/completions", `{"messages":null}`, 400, "missing_required_parameter", "messages", ""},
	{"/v1/chat/completions", `{"messages":"hi"}`, 400, "invalid_value", "messages", "want an array, got a string"},
	{"/v1/chat/completions", `{"messages":[]}`, 400, "invalid_value", "messages", "at least one message"},
	{"/v1/chat/completions", `{"messages":["hi"]}`, 400, "invalid_value", "messages[0]", "want an object, got a string"},
	{"/v1/chat/completions", `{"messages":[null]}`, 400, "invalid_value", "messages[0]", "want an object, got null"},
	{"/v1/chat/completions", `{"messages":[{"content":"hi"}]}`, 400, "missing_required_parameter", "messages[0].role", ""},
	{"/v1/chat/completions", `{"messages":[{"role":"robot","content":"hi"}]}`, 400, "invalid_value", "messages[0].role", `"developer"`},
	{"/v1/chat/completions", `{"messages":[{"role":1}]}`, 400, "invalid_value", "messages[0].role", "want a string, got a number"},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":5}]}`, 400, "invalid_value", "messages[0].content", "a string or an array of parts"},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":{}}]}`, 400, "invalid_value", "messages[0].content", "got an object"},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`, 400, "unsupported_value", "messages[0].content[0].type", "text only"},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"dance"}]}]}`, 400, "invalid_value", "messages[0].content[0].type", `want "text"`},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"text":"x"}]}]}`, 400, "missing_required_parameter", "messages[0].content[0].type", ""},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, 400, "missing_required_parameter", "messages[0].content[0].text", ""},
	{"/v1/chat/completions", `{"messages":[{"role":"user","tool_calls":[{"function":{"name":"f"}}]}]}`, 400, "invalid_value", "messages[0].tool_calls", "assistant only"},
	{"/v1/chat/completions", `{"messages":[{"role":"assistant","tool_calls":[{"id":"1"}]}]}`, 400, "missing_required_parameter", "messages[0].tool_calls[0].function", ""},
	{"/v1/chat/completions", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[]}}]}]}`, 400, "invalid_value", "messages[0].tool_calls[0].function.arguments", ""},
	{"/v1/chat/completions", `{MESSAGES,"model":"gpt-4"}`, 404, "model_not_found", "model", `want "fake-1B", "default" or nothing`},
	{"/v1/chat/completions", `{MESSAGES,"model":7}`, 400, "invalid_value", "model", ""},
	{"/v1/chat/completions", `{MESSAGES,"max_tokens":0}`, 400, "invalid_value", "max_tokens", "from 1"},
	{"/v1/chat/completions", `{MESSAGES,"max_tokens":-1}`, 400, "invalid_value", "max_tokens", ""},
	{"/v1/chat/completions", `{MESSAGES,"max_tokens":"5"}`, 400, "invalid_value", "max_tokens", "want a whole number, got a string"},
	{"/v1/chat/completions", `{MESSAGES,"max_completion_tokens":1.5}`, 400, "invalid_value", "max_completion_tokens", "want a whole number"},
	{"/v1/chat/completions", `{MESSAGES,"max_tokens":99999999999999999999}`, 400, "invalid_value", "max_tokens", ""},
	{"/v1/chat/completions", `{MESSAGES,"temperature":2.1}`, 400, "invalid_value", "temperature", "from 0 to 2"},
	{"/v1/chat/completions", `{MESSAGES,"temperature":-0.1}`, 400, "invalid_value", "temperature", ""},
	{"/v1/chat/completions", `{MESSAGES,"temperature":"hot"}`, 400, "invalid_value", "temperature", "want a number, got a string"},
	{"/v1/chat/completions", `{MESSAGES,"temperature":1e999}`, 400, "invalid_value", "temperature", ""},
	{"/v1/chat/completions", `{MESSAGES,"top_p":1.01}`, 400, "invalid_value", "top_p", ""},
	{"/v1/chat/completions", `{MESSAGES,"top_k":-2}`, 400, "invalid_value", "top_k", ""},
	{"/v1/chat/completions", `{MESSAGES,"min_p":2}`, 400, "invalid_value", "min_p", ""},
	{"/v1/chat/completions", `{MESSAGES,"frequency_penalty":3}`, 400, "invalid_value", "frequency_penalty", "from -2 to 2"},
	{"/v1/chat/completions", `{MESSAGES,"presence_penalty":[1]}`, 400, "invalid_value", "presence_penalty", ""},
	{"/v1/chat/completions", `{MESSAGES,"repetition_penalty":-1}`, 400, "invalid_value", "repetition_penalty", ""},
	{"/v1/chat/completions", `{MESSAGES,"seed":0.5}`, 400, "invalid_value", "seed", ""},
	{"/v1/chat/completions", `{MESSAGES,"stop":[]}`, 400, "invalid_value", "stop", "1 to 8"},
	{"/v1/chat/completions", `{MESSAGES,"stop":["1","2","3","4","5","6","7","8","9"]}`, 400, "invalid_value", "stop", "8"},
	{"/v1/chat/completions", `{MESSAGES,"stop":""}`, 400, "invalid_value", "stop", "1 to 1024 bytes"},
	{"/v1/chat/completions", `{MESSAGES,"stop":[1]}`, 400, "invalid_value", "stop", "got a number"},
	{"/v1/chat/completions", `{MESSAGES,"stop":[null]}`, 400, "invalid_value", "stop", "got null"},
	{"/v1/chat/completions", `{MESSAGES,"n":0}`, 400, "invalid_value", "n", ""},
	{"/v1/chat/completions", `{MESSAGES,"n":33}`, 400, "invalid_value", "n", "1 to 32"},
	{"/v1/chat/completions", `{MESSAGES,"logprobs":1}`, 400, "invalid_value", "logprobs", "true or false"},
	{"/v1/chat/completions", `{MESSAGES,"top_logprobs":3}`, 400, "invalid_value", "top_logprobs", "logprobs: true"},
	{"/v1/chat/completions", `{MESSAGES,"logprobs":true,"top_logprobs":21}`, 400, "invalid_value", "top_logprobs", "0 to 20"},
	{"/v1/chat/completions", `{MESSAGES,"logit_bias":[]}`, 400, "invalid_value", "logit_bias", "want an object"},
	{"/v1/chat/completions", `{MESSAGES,"logit_bias":{"x":1}}`, 400, "invalid_value", "logit_bias", "token ids from 0"},
	{"/v1/chat/completions", `{MESSAGES,"logit_bias":{"99999":1}}`, 400, "invalid_value", "logit_bias", "token ids from 0"},
	{"/v1/chat/completions", `{MESSAGES,"logit_bias":{"5":101}}`, 400, "invalid_value", "logit_bias.5", "-100 to 100"},
	{"/v1/chat/completions", `{MESSAGES,"stream":"yes"}`, 400, "invalid_value", "stream", ""},
	{"/v1/chat/completions", `{MESSAGES,"stream_options":{"include_usage":true}}`, 400, "invalid_value", "stream_options", "stream: true"},
	{"/v1/chat/completions", `{MESSAGES,"stream":true,"stream_options":{"include_usage":1}}`, 400, "invalid_value", "stream_options.include_usage", ""},
	{"/v1/chat/completions", `{MESSAGES,"stream":true,"stream_options":true}`, 400, "invalid_value", "stream_options", ""},
	{"/v1/chat/completions", `{MESSAGES,"user":5}`, 400, "invalid_value", "user", ""},
	{"/v1/chat/completions", `{MESSAGES,"metadata":{"a":5}}`, 400, "invalid_value", "metadata.a", ""},
	{"/v1/chat/completions", `{MESSAGES,"response_format":{"type":"json_object"}}`, 400, "unsupported_value", "response_format", `want "text"`},
	{"/v1/chat/completions", `{MESSAGES,"response_format":{"type":"json_schema","json_schema":{}}}`, 400, "unsupported_value", "response_format", ""},
	{"/v1/chat/completions", `{MESSAGES,"response_format":{"type":"xml"}}`, 400, "invalid_value", "response_format.type", ""},
	{"/v1/chat/completions", `{MESSAGES,"response_format":"json"}`, 400, "invalid_value", "response_format", ""},
	{"/v1/chat/completions", `{MESSAGES,"response_format":{}}`, 400, "missing_required_parameter", "response_format.type", ""},
	{"/v1/chat/completions", `{MESSAGES,"tools":{}}`, 400, "invalid_value", "tools", "want an array"},
	{"/v1/chat/completions", `{MESSAGES,"tools":[{}]}`, 400, "missing_required_parameter", "tools[0].type", ""},
	{"/v1/chat/completions", `{MESSAGES,"tools":[{"type":"web_search"}]}`, 400, "unsupported_value", "tools[0].type", `want "function"`},
	{"/v1/chat/completions", `{MESSAGES,"tools":[{"type":"function"}]}`, 400, "missing_required_parameter", "tools[0].function", ""},
	{"/v1/chat/completions", `{MESSAGES,"tools":[{"type":"function","function":{}}]}`, 400, "missing_required_parameter", "tools[0].function.name", ""},
	{"/v1/chat/completions", `{MESSAGES,"tools":[{"type":"function","function":{"name":"f","parameters":1}}]}`, 400, "invalid_value", "tools[0].function.parameters", ""},
	{"/v1/chat/completions", `{MESSAGES,"tool_choice":"required"}`, 400, "unsupported_value", "tool_choice", `"auto" or "none"`},
	{"/v1/chat/completions", `{MESSAGES,"tool_choice":{"type":"function","function":{"name":"f"}}}`, 400, "unsupported_value", "tool_choice", ""},
	{"/v1/chat/completions", `{MESSAGES,"tool_choice":"maybe"}`, 400, "invalid_value", "tool_choice", ""},
	{"/v1/chat/completions", `{MESSAGES,"tool_choice":1}`, 400, "invalid_value", "tool_choice", ""},
	{"/v1/chat/completions", `{MESSAGES,"parallel_tool_calls":"no"}`, 400, "invalid_value", "parallel_tool_calls", ""},
	{"/v1/chat/completions", `{MESSAGES,"functions":[]}`, 400, "unsupported_value", "functions", "use tools"},
	{"/v1/chat/completions", `{MESSAGES,"chat_template_kwargs":"x"}`, 400, "invalid_value", "chat_template_kwargs", ""},
	{"/v1/chat/completions", `{MESSAGES,"chat_template_kwargs":{"messages":[]}}`, 400, "invalid_value", "chat_template_kwargs", ""},
	{"/v1/chat/completions", `{MESSAGES,"reasoning_effort":"huge"}`, 400, "invalid_value", "reasoning_effort", `"low"`},
	{"/v1/chat/completions", `{MESSAGES,"modalities":["audio"]}`, 400, "unsupported_value", "modalities[0]", ""},
	{"/v1/chat/completions", `{MESSAGES,"audio":{}}`, 400, "unsupported_value", "audio", ""},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"LONG"}]}`, 400, "context_length_exceeded", "messages", "the context of 4096"},
	{"/v1/chat/completions", `{"messages":[MANY]}`, 400, "invalid_value", "messages", "more than 20"},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"HUGE"}]}`, 413, "request_too_large", "", "larger than 65536 bytes"},

	{"/v1/completions", `{}`, 400, "missing_required_parameter", "prompt", "want a string, an array of strings"},
	{"/v1/completions", `{"prompt":7}`, 400, "invalid_value", "prompt", "got a number"},
	{"/v1/completions", `{"prompt":[]}`, 400, "invalid_value", "prompt", "at least one"},
	{"/v1/completions", `{"prompt":""}`, 400, "invalid_value", "prompt", "is empty"},
	{"/v1/completions", `{"prompt":["a",5]}`, 400, "invalid_value", "prompt[1]", "got a number"},
	{"/v1/completions", `{"prompt":[1,-5]}`, 400, "invalid_value", "prompt[1]", "a token id from 0"},
	{"/v1/completions", `{"prompt":[1,99999]}`, 400, "invalid_value", "prompt[1]", "a token id from 0"},
	{"/v1/completions", `{"prompt":[1,"x"]}`, 400, "invalid_value", "prompt[1]", ""},
	{"/v1/completions", `{"prompt":[[]]}`, 400, "invalid_value", "prompt", "is empty"},
	{"/v1/completions", `{"prompt":[[1.5]]}`, 400, "invalid_value", "prompt[0][0]", ""},
	{"/v1/completions", `{"prompt":"x","suffix":"y"}`, 400, "unsupported_value", "suffix", ""},
	{"/v1/completions", `{"prompt":"x","echo":"y"}`, 400, "invalid_value", "echo", ""},
	{"/v1/completions", `{"prompt":"x","echo":true,"logprobs":1}`, 400, "unsupported_value", "logprobs", ""},
	{"/v1/completions", `{"prompt":"x","logprobs":21}`, 400, "invalid_value", "logprobs", ""},
	{"/v1/completions", `{"prompt":"x","best_of":4}`, 400, "unsupported_value", "best_of", ""},
	{"/v1/completions", `{"prompt":"LONG"}`, 400, "context_length_exceeded", "prompt", ""},

	{"/v1/responses", `{}`, 400, "missing_required_parameter", "input", ""},
	{"/v1/responses", `{"input":5}`, 400, "invalid_value", "input", ""},
	{"/v1/responses", `{"input":[]}`, 400, "invalid_value", "input", ""},
	{"/v1/responses", `{"input":[{"role":"x","content":"y"}]}`, 400, "invalid_value", "input[0].role", ""},
	{"/v1/responses", `{"input":[{"content":"y"}]}`, 400, "missing_required_parameter", "input[0].role", ""},
	{"/v1/responses", `{"input":[{"type":"computer_call"}]}`, 400, "unsupported_value", "input[0].type", ""},
	{"/v1/responses", `{"input":[{"type":"function_call_output","output":"x"}]}`, 400, "missing_required_parameter", "input[0].call_id", ""},
	{"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_image"}]}]}`, 400, "unsupported_value", "input[0].content[0].type", ""},
	{"/v1/responses", `{"input":"x","previous_response_id":"resp_none"}`, 404, "previous_response_not_found", "previous_response_id", ""},
	{"/v1/responses", `{"input":"x","text":{"format":{"type":"json_schema"}}}`, 400, "unsupported_value", "text.format", ""},
	{"/v1/responses", `{"input":"x","background":true}`, 400, "unsupported_value", "background", ""},
	{"/v1/responses", `{"input":"x","truncation":"auto"}`, 400, "unsupported_value", "truncation", ""},
	{"/v1/responses", `{"input":"x","include":["message.output_text.logprobs"]}`, 400, "unsupported_value", "include[0]", ""},
	{"/v1/responses", `{"input":"x","max_output_tokens":0}`, 400, "invalid_value", "max_output_tokens", ""},
	{"/v1/responses", `{"input":"x","tools":[{"type":"web_search"}]}`, 400, "unsupported_value", "tools[0].type", ""},
	{"/v1/responses", `{"input":"x","tools":[{"type":"function"}]}`, 400, "missing_required_parameter", "tools[0].name", ""},
	{"/v1/responses", `{"input":"x","reasoning":{"effort":"x"}}`, 400, "invalid_value", "reasoning.effort", ""},
	{"/v1/responses", `{"input":"x","conversation":"c"}`, 400, "unsupported_value", "conversation", ""},

	{"/v1/embeddings", `{}`, 400, "missing_required_parameter", "input", ""},
	{"/v1/embeddings", `{"input":"x","encoding_format":"hex"}`, 400, "invalid_value", "encoding_format", `"base64"`},
	{"/v1/embeddings", `{"input":"x","dimensions":5}`, 400, "unsupported_value", "dimensions", ""},
	{"/v1/embeddings", `{"input":"x"}`, 400, "no_embedding_model", "model", "is no embedding model"},

	{"/tokenize", `{}`, 400, "missing_required_parameter", "content", ""},
	{"/tokenize", `{"content":[]}`, 400, "invalid_value", "content", ""},
	{"/tokenize", `{"content":"x","parse_special":false}`, 400, "unsupported_value", "parse_special", ""},
	{"/detokenize", `{}`, 400, "missing_required_parameter", "tokens", ""},
	{"/detokenize", `{"tokens":"x"}`, 400, "invalid_value", "tokens", ""},
	{"/detokenize", `{"tokens":[1e9]}`, 400, "invalid_value", "tokens[0]", ""},
	{"/apply-template", `{}`, 400, "missing_required_parameter", "messages", ""},
}

func TestBadRequests(t *testing.T) {
	f := start(t, func(o *Options, _ *servertest.Model) { o.MaxMessages, o.MaxBody = 20, 64<<10 })
	message := `{"role":"user","content":"hi"}`
	fill := strings.NewReplacer(
		"MESSAGES", `"messages":[`+message+`]`, "LONG", strings.Repeat("x", 5000), "HUGE", strings.Repeat("x", 70_000),
		"MANY", message+strings.Repeat(","+message, 20),
	)
	require.GreaterOrEqual(t, len(bad), 40)
	for i, b := range bad {
		t.Run(fmt.Sprint(i, b.path, b.body), func(t *testing.T) {
			status, text := f.post(t, b.path, fill.Replace(b.body))
			require.Equal(t, b.status, status, text)
			e := parsed(t, text)["error"].(map[string]any)
			require.Equal(t, "invalid_request_error", e["type"], text)
			require.Equal(t, b.code, e["code"], text)
			if b.param == "" {
				require.Nil(t, e["param"], text)
			} else {
				require.Equal(t, b.param, e["param"], text)
				require.Contains(t, e["message"], b.param)
			}
			require.Contains(t, e["message"], b.want)
			require.Less(t, len(text), 600, "an error repeats little of what was sent")
		})
	}
	require.Empty(t, f.model.Requests(), "nothing of it reached the model")
	require.Zero(t, f.answers.Load())
}

// What OpenAI accepts is accepted, and nulls count as nothing.
func TestAcceptedRequests(t *testing.T) {
	f := start(t, nil)
	for _, body := range []string{
		`{MESSAGES}`,
		` {MESSAGES} `,
		`{MESSAGES,"unknown_field":{"a":[1]}}`,
		`{MESSAGES,"model":"default"}`, `{MESSAGES,"model":""}`, `{MESSAGES,"model":"fake-1B"}`, `{MESSAGES,"model":null}`,
		`{MESSAGES,"temperature":null,"stop":null,"n":null,"tools":null,"stream":null,"logit_bias":null,"response_format":null}`,
		`{MESSAGES,"max_tokens":5.0}`, `{MESSAGES,"max_tokens":5e0}`, `{MESSAGES,"seed":-1}`, `{MESSAGES,"seed":9223372036854775807}`,
		`{MESSAGES,"top_k":-1,"user":"u","metadata":{"a":"b"},"service_tier":"auto","store":true,"prediction":{}}`,
		`{MESSAGES,"stop":"x"}`, `{MESSAGES,"stop":["1","2","3","4","5","6","7","8"]}`,
		`{MESSAGES,"tools":[],"tool_choice":"none","parallel_tool_calls":false}`,
		`{MESSAGES,"response_format":{"type":"text"},"modalities":["text"],"reasoning_effort":"low","verbosity":"low"}`,
		`{MESSAGES,"logprobs":false,"top_logprobs":null}`, `{MESSAGES,"logprobs":true,"top_logprobs":0}`,
		`{"messages":[{"role":"system","content":"a"},{"role":"developer","content":"b"},{"role":"user","content":[{"type":"text","text":"c"}],"name":"n"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}],"refusal":null},
			{"role":"tool","tool_call_id":"1","content":"d"},{"role":"function","name":"f","content":"e"},{"role":"user","content":null}]}`,
	} {
		body = strings.ReplaceAll(body, "MESSAGES", `"messages":[{"role":"user","content":"hi"}]`)
		status, text := f.post(t, "/v1/chat/completions", body)
		require.Equal(t, 200, status, "%s\n%s", body, text)
	}
}
