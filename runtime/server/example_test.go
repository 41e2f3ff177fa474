package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"mlxcel/runtime/server"
	"mlxcel/runtime/server/servertest"
)

// A server is an http.Handler. It answers that it is loading until the model is handed over.
func Example() {
	s := server.New(server.Options{Name: "org/model"})
	ask := func(method, path, body string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	ask(http.MethodGet, "/health", "")
	if err := s.Ready(servertest.New()); err != nil { // or a *runtime.Model
		fmt.Println(err)
	}
	ask(http.MethodGet, "/health", "")
	ask(http.MethodPost, "/v1/chat/completions", `{"messages": [], "stop": 5}`)
	// Output:
	// 503 {"error":{"message":"the model is loading","type":"unavailable_error","param":null,"code":"loading"}}
	// 200 {"status":"ok"}
	// 400 {"error":{"message":"messages: want at least one message, got none","type":"invalid_request_error","param":"messages","code":"invalid_value"}}
}
