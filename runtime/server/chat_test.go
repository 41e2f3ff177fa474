package server

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	f := start(t, nil)
	status, text := f.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Héllo 世界"}]}`)
	require.Equal(t, 200, status, text)
	var a chatAnswer
	require.NoError(t, json.Unmarshal([]byte(text), &a))
	require.Equal(t, "Héllo 世界", *a.Choices[0].Message.Content)
	t.Log(text)
	_, text = f.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Héllo 世界"}],"stream":true}`)
	t.Log(text)
	_, text = f.post(t, "/v1/responses", `{"input":"Hé","stream":true}`)
	t.Log(text)
	t.Log(f.log.String())
}
