package server

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime/server/servertest"
)

// Every route answers, those of OpenAI's shape without their prefix too.
func TestRoutes(t *testing.T) {
	f := start(t, nil)
	for _, r := range []struct{ method, path, body, want string }{
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`, `"object":"chat.completion"`},
		{"POST", "/chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`, `"object":"chat.completion"`},
		{"POST", "/v1/completions", `{"prompt":"hi"}`, `"object":"text_completion"`},
		{"POST", "/completions", `{"prompt":"hi"}`, `"object":"text_completion"`},
		{"POST", "/v1/responses", `{"input":"hi"}`, `"object":"response"`},
		{"POST", "/responses", `{"input":"hi"}`, `"object":"response"`},
		{"GET", "/v1/models", "", `{"data":[{"id":"fake-1B","object":"model"`},
		{"GET", "/models", "", `"n_ctx":4096`},
		{"GET", "/v1/models/fake-1B", "", `"id":"fake-1B"`},
		{"GET", "/models/default", "", `"id":"fake-1B"`},
		{"POST", "/tokenize", `{"content":"aé"}`, `{"tokens":[97,195,169]}`},
		{"POST", "/tokenize", `{"content":"<|im_end|>","add_special":true}`, `{"tokens":[257]}`},
		{"POST", "/tokenize", `{"content":"a","with_pieces":true}`, `{"tokens":[{"id":97,"piece":"a"}]}`},
		{"POST", "/detokenize", `{"tokens":[97,195,169,257]}`, `{"content":"aé<|im_end|>"}`},
		{"POST", "/apply-template", `{"messages":[{"role":"user","content":"hi"}]}`, `<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n`},
		{"GET", "/health", "", `{"status":"ok"}`},
		{"GET", "/v1/health", "", `{"status":"ok"}`},
		{"GET", "/props", "", `"n_ctx":4096`},
		{"GET", "/props", "", `"total_slots":8`},
		{"GET", "/props", "", `"eos_token":"<|im_end|>"`},
		{"GET", "/slots", "", `[{"id":0,"is_processing":false,"n_ctx":4096,"n_tokens":0}`},
		{"GET", "/metrics", "", "# TYPE mlxcel_http_requests_total counter"},
		{"GET", "/", "", "<!doctype html>"},
		{"GET", "/page/chat.js", "", "import { events }"},
		{"GET", "/page/style.css", "", ":root"},
	} {
		status, header, text := f.send(t, r.method, r.path, r.body, nil)
		require.Equal(t, 200, status, "%s %s: %s", r.method, r.path, text)
		require.Contains(t, text, r.want, r.path)
		require.NotEmpty(t, header.Get("Content-Type"))
		require.NotEmpty(t, header.Get("X-Request-Id"))
		if r.method == "GET" {
			status, _, text = f.send(t, "HEAD", r.path, "", nil)
			require.Equal(t, 200, status)
			require.Empty(t, text)
		}
	}
}

func TestUnknownRoutes(t *testing.T) {
	f := start(t, nil)
	for _, r := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/v1/nothing", 404, "unknown_url", ""},
		{"POST", "/v2/chat/completions", 404, "unknown_url", ""},
		{"GET", "/page/nothing.js", 404, "unknown_url", ""},
		{"GET", "/page/..%2fserver.go", 404, "unknown_url", ""},
		{"GET", "/v1/models/other", 404, "model_not_found", ""},
		{"GET", "/v1/responses/resp_x", 404, "response_not_found", ""},
		{"GET", "/v1/chat/completions", 405, "method_not_allowed", "POST"},
		{"POST", "/v1/models", 405, "method_not_allowed", "GET, HEAD"},
		{"PUT", "/v1/responses/x", 405, "method_not_allowed", "GET, HEAD, DELETE"},
	} {
		status, header, text := f.send(t, r.method, r.path, "", nil)
		require.Equal(t, r.status, status, r.path)
		e := parsed(t, text)["error"].(map[string]any)
		require.Equal(t, "invalid_request_error", e["type"])
		require.Equal(t, r.code, e["code"], r.path)
		require.Equal(t, r.allow, header.Get("Allow"))
	}
}

// Parts of the server can be left out.
func TestOptionalRoutes(t *testing.T) {
	f := start(t, func(o *Options, _ *servertest.Model) { o.Page, o.Metrics = false, false })
	for _, path := range []string{"/", "/page/chat.js", "/metrics"} {
		status, _ := f.get(t, path)
		require.Equal(t, 404, status, path)
	}
}

func TestModelIDWithSlash(t *testing.T) {
	f := start(t, func(o *Options, _ *servertest.Model) { o.Name = "org/name-4bit" })
	for _, path := range []string{"/v1/models/org/name-4bit", "/v1/models/org%2Fname-4bit"} {
		status, text := f.get(t, path)
		require.Equal(t, 200, status, text)
		require.Equal(t, "org/name-4bit", parsed(t, text)["id"])
	}
	status, text := f.post(t, "/v1/chat/completions", `{"model":"org/name-4bit","messages":[{"role":"user","content":"hi"}]}`)
	require.Equal(t, 200, status)
	require.Equal(t, "org/name-4bit", parsed(t, text)["model"])
}

// While there is no model, and when it has failed, everyone is told so.
func TestPhases(t *testing.T) {
	f := start(t, nil)
	loading := New(Options{})
	f.handler = loading.handler
	for _, path := range []string{"/health", "/props", "/slots"} {
		status, header, text := f.send(t, "GET", path, "", nil)
		require.Equal(t, 503, status)
		require.Equal(t, "1", header.Get("Retry-After"))
		require.Contains(t, text, "the model is loading")
	}
	status, text := f.get(t, "/v1/models")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"object":"list","data":[]}`, text)
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/tokenize", "/detokenize", "/apply-template"} {
		status, text = f.post(t, path, `{}`)
		require.Equal(t, 503, status, text)
	}
	loading.Fail(errors.New("no such file"))
	status, text = f.get(t, "/health")
	require.Equal(t, 503, status)
	require.Contains(t, text, "no such file")
}

func TestEmbeddings(t *testing.T) {
	f := start(t, func(_ *Options, m *servertest.Model) { m.Vectors = true })
	status, text := f.post(t, "/v1/embeddings", `{"input":["a","bcd",""]}`)
	require.Equal(t, 400, status, text)
	status, text = f.post(t, "/embeddings", `{"input":["a","bcd"],"model":"default"}`)
	require.Equal(t, 200, status, text)
	require.JSONEq(t, `{"object":"list","model":"fake-1B","usage":{"prompt_tokens":4,"total_tokens":4},"data":[
		{"object":"embedding","index":0,"embedding":[1,-0.5]},{"object":"embedding","index":1,"embedding":[3,-0.5]}]}`, text)
	_, text = f.post(t, "/v1/embeddings", `{"input":[97,98],"encoding_format":"base64"}`)
	data := parsed(t, text)["data"].([]any)[0].(map[string]any)["embedding"].(string)
	raw, err := base64.StdEncoding.DecodeString(data)
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 0, 0x40, 0, 0, 0, 0xbf}, raw)
}

// JSON is read whatever the content type says.
func TestContentTypeIsNotLookedAt(t *testing.T) {
	f := start(t, nil)
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"} {
		status, _, _ := f.send(t, "POST", "/tokenize", `{"content":"a"}`, http.Header{"Content-Type": {kind}})
		require.Equal(t, 200, status)
	}
}

func TestPageLoadsNothingFromElsewhere(t *testing.T) {
	for _, name := range []string{"index.html", "style.css", "chat.js", "stream.js"} {
		text, err := pageFiles.ReadFile("page/" + name)
		require.NoError(t, err)
		require.NotContains(t, string(text), "//cdn")
		require.NotContains(t, strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", ""), "http")
	}
	f := start(t, nil)
	_, header, _ := f.send(t, "GET", "/", "", nil)
	require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'")
	require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
}
