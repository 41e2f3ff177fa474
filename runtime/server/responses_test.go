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

// respond sends a request, whole and streamed, and returns the response, which must have the same output both times.
func (f *fixture) respond(t *testing.T, body string) response {
	t.Helper()
	status, text := f.post(t, "/v1/responses", body)
	require.Equal(t, 200, status, text)
	var whole response
	require.NoError(t, json.Unmarshal([]byte(text), &whole))
	_, text = f.post(t, "/v1/responses", strings.TrimSuffix(body, "}")+`,"stream":true}`)
	var last struct {
		Type     string
		Response response
	}
	deltas := map[string]string{}
	for i, e := range readEvents(t, text) {
		var fields struct {
			Type   string `json:"type"`
			Number int    `json:"sequence_number"`
			ItemID string `json:"item_id"`
			Delta  string `json:"delta"`
		}
		require.NoError(t, json.Unmarshal([]byte(e.data), &fields))
		require.Equal(t, i, fields.Number)
		require.Equal(t, e.name, fields.Type)
		deltas[fields.ItemID] += fields.Delta
		require.NoError(t, json.Unmarshal([]byte(e.data), &last))
	}
	require.Equal(t, "response."+whole.Status, last.Type)
	for i, item := range last.Response.Output {
		want := whole.Output[i]
		want.ID, want.CallID = item.ID, item.CallID
		require.Equal(t, want, item)
		switch {
		case item.Arguments != nil:
			require.Equal(t, *item.Arguments, deltas[item.ID])
		default:
			require.Equal(t, (*item.Content)[0].Text, deltas[item.ID])
		}
	}
	require.Len(t, last.Response.Output, len(whole.Output))
	require.Equal(t, whole.Usage.OutputTokens, last.Response.Usage.OutputTokens)
	return whole
}

func TestResponses(t *testing.T) {
	f := start(t, says("<think>Hm</think>Hé.\n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>"))
	a := f.respond(t, `{"input":"hi","instructions":"Be brief.","max_output_tokens":500,"temperature":0.5,"top_p":0.5,"seed":3,"user":"u",
		"metadata":{"k":"v"},"reasoning":{"effort":"low","summary":"auto"},"tools":[{"type":"function","name":"f","parameters":{}}],"text":{"format":{"type":"text"}}}`)
	require.Equal(t, "completed", a.Status)
	require.Equal(t, "Be brief.", *a.Instructions)
	require.Equal(t, 500, *a.MaxOutputTokens)
	require.Equal(t, "low", *a.Reasoning.Effort)
	require.Equal(t, map[string]string{"k": "v"}, a.Metadata)
	require.Equal(t, 0.5, a.Temperature)
	require.Len(t, a.Output, 3)
	require.Equal(t, "Hm", (*a.Output[0].Content)[0].Text)
	require.Equal(t, "Hé.", (*a.Output[1].Content)[0].Text)
	require.Equal(t, "f", a.Output[2].Name)
	require.Equal(t, `{"a":1}`, *a.Output[2].Arguments)
	r := f.model.Last()
	require.Equal(t, 500, r.MaxTokens)
	require.EqualValues(t, 3, r.Sampling.Seed)
	require.Contains(t, f.model.Prompt(r), `Tools: [{"type": "function", "function": {"name": "f", "parameters": {}}}]`)
	require.Contains(t, f.model.Prompt(r), "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>")
}

func TestResponsesLimit(t *testing.T) {
	f := start(t, says("abc"))
	a := f.respond(t, `{"input":"hi","max_output_tokens":2}`)
	require.Equal(t, "incomplete", a.Status)
	require.Equal(t, "max_output_tokens", a.IncompleteDetails.Reason)
	require.Equal(t, "incomplete", a.Output[0].Status)
}

// Items become messages as the template knows them.
func TestResponsesInput(t *testing.T) {
	f := start(t, nil)
	f.respond(t, `{"input":[
		{"role":"developer","content":"be"},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},
		{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]},
		{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
		{"type":"function_call","call_id":"2","name":"g","arguments":"{}"},
		{"type":"function_call_output","call_id":"1","output":"r1"},
		{"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"r2"}]}]}`)
	require.Equal(t, "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"+
		`<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{"name": "g", "arguments": {}}</tool_call>b<|im_end|>`+
		"\n<|im_start|>tool\nr1<|im_end|>\n<|im_start|>tool\nr2<|im_end|>\n<|im_start|>assistant\n", f.model.Prompt(f.model.Last()))
}

// A response goes on from an earlier one, whose instructions are not carried on.
func TestPreviousResponse(t *testing.T) {
	f := start(t, nil)
	send := func(body string) response {
		status, text := f.post(t, "/v1/responses", body)
		require.Equal(t, 200, status, text)
		var a response
		require.NoError(t, json.Unmarshal([]byte(text), &a))
		return a
	}
	first := send(`{"input":"one","instructions":"secret"}`)
	second := send(fmt.Sprintf(`{"input":"two","previous_response_id":%q}`, first.ID))
	require.Equal(t, first.ID, *second.PreviousResponseID)
	send(fmt.Sprintf(`{"input":"three","previous_response_id":%q,"store":false}`, second.ID))
	require.Equal(t, "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n"+
		"<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n", f.model.Prompt(f.model.Last()))

	// A branch from the first one does not see the second.
	send(fmt.Sprintf(`{"input":"other","previous_response_id":%q}`, first.ID))
	require.NotContains(t, f.model.Prompt(f.model.Last()), "two")

	status, text := f.get(t, "/v1/responses/"+first.ID)
	require.Equal(t, 200, status)
	require.Equal(t, first.ID, parsed(t, text)["id"])
	status, text = f.get(t, "/v1/responses/"+first.ID+"/input_items")
	require.Equal(t, 200, status)
	require.Contains(t, text, `"text":"one"`)
	n, _ := f.stored.size()
	require.Equal(t, 3, n, "the one with store: false is not kept")

	status, _, text = f.send(t, "DELETE", "/v1/responses/"+first.ID, "", nil)
	require.Equal(t, 200, status)
	require.Equal(t, true, parsed(t, text)["deleted"])
	for _, method := range []string{"GET", "DELETE"} {
		status, _, text = f.send(t, method, "/v1/responses/"+first.ID, "", nil)
		require.Equal(t, 404, status)
		require.Contains(t, text, "response_id")
	}
}

func TestStoreIsBounded(t *testing.T) {
	s := newStore(3, 1000)
	add := func(id string, bytes int64) { s.add(&storedResponse{response: response{ID: id}, bytes: bytes}) }
	add("a", 100)
	add("b", 100)
	add("c", 100)
	require.NotNil(t, s.get("a"))
	add("d", 100)
	require.Nil(t, s.get("b"), "the one that was not used for the longest time")
	require.NotNil(t, s.get("a"))
	add("e", 950)
	n, bytes := s.size()
	require.Equal(t, 1, n)
	require.EqualValues(t, 950, bytes)
	add("f", 1001)
	require.Nil(t, s.get("f"), "too large")
	require.True(t, s.remove("e"))
	require.False(t, s.remove("e"))
	n, bytes = s.size()
	require.Zero(t, n)
	require.Zero(t, bytes)
}

// However many responses come, memory stays bounded.
func TestStoreUnderLoad(t *testing.T) {
	f := start(t, func(o *Options, _ *servertest.Model) { o.StoredBytes = 20_000 })
	for range 30 {
		status, _ := f.post(t, "/v1/responses", `{"input":"`+strings.Repeat("x", 500)+`"}`)
		require.Equal(t, 200, status)
	}
	n, bytes := f.stored.size()
	require.Positive(t, n)
	require.Less(t, n, 20)
	require.LessOrEqual(t, bytes, int64(20_000))
	require.Equal(t, bytes >= messageBytes([]runtime.Message{{Content: strings.Repeat("x", 500)}}, nil), true)
}
