package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/server/servertest"
)

// Whatever is sent, the answer is 200 or an error object in OpenAI's form, never a panic.
func FuzzRequest(f *testing.F) {
	m := servertest.New()
	m.Script = func(string, runtime.Request) servertest.Answer { return servertest.Answer{Text: "a"} }
	s := New(Options{MaxBody: 1 << 16, MaxTokens: 4})
	require.NoError(f, s.Ready(m))
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/tokenize", "/detokenize", "/apply-template"}
	for i, b := range bad {
		if i%4 == 0 {
			f.Add(uint8(len(b.path)), []byte(strings.ReplaceAll(b.body, "MESSAGES", `"messages":[{"role":"user","content":"hi"}]`)))
		}
	}
	f.Add(uint8(0), []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"stream":true,"n":2,"stop":["a"]}`))
	f.Add(uint8(1), []byte(`{"prompt":[[1,2],[3]],"echo":true,"stream":true}`))
	f.Add(uint8(2), []byte(`{"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"1","name":"f","arguments":"{"}]}`))
	f.Fuzz(func(t *testing.T, path uint8, body []byte) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, paths[int(path)%len(paths)], bytes.NewReader(body)))
		if w.Code == 200 {
			return
		}
		require.Contains(t, []int{400, 404, 413}, w.Code, w.Body.String())
		var e struct {
			Error struct {
				Message string
				Type    string
			}
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e))
		require.NotEmpty(t, e.Error.Message)
		require.Equal(t, "invalid_request_error", e.Error.Type)
	})
}

// Whatever is written as an event is read as the same, but for its line ends.
func FuzzEvent(f *testing.F) {
	f.Add("", []byte(`{"a":"b"}`))
	f.Add("response.created", []byte("a\nb"))
	f.Add("a\nb: c", []byte("\r\n\r\rdata: x\n\n"))
	f.Add("", []byte(" "))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		text := string(appendEvent(appendEvent(nil, name, data), "", []byte("next")))
		require.NotContains(t, text, "\r")
		events := readEvents(t, text)
		require.Len(t, events, 2)
		want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
		require.Equal(t, want, events[0].data)
		name = strings.NewReplacer("\r", "", "\n", "").Replace(name)
		require.Equal(t, strings.TrimPrefix(name, " "), strings.TrimPrefix(events[0].name, " "))
		require.Equal(t, event{data: "next"}, events[1])
	})
}
