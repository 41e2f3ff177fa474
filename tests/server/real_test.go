package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/tests/server/realserver"
)

// real asks a server with the default model on the real library.
type real struct{ *realserver.Server }

// chat asks for an answer of at most n tokens and returns its text and how many prompt tokens were cached.
func (r real) chat(ctx context.Context, n int, content, more string) (text string, cached int, err error) {
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":%d%s}`, content, n, more)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	if strings.Contains(more, `"stream":true`) {
		return joinStream(response.Body)
	}
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		Error any
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", 0, err
	}
	if len(answer.Choices) == 0 {
		return "", 0, fmt.Errorf("status %d: %v", response.StatusCode, answer.Error)
	}
	return answer.Choices[0].Message.Content, answer.Usage.Details.Cached, nil
}

func joinStream(body io.Reader) (text string, cached int, err error) {
	all, err := io.ReadAll(body)
	if err != nil {
		return "", 0, err
	}
	for line := range strings.SplitSeq(string(all), "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return "", 0, err
		}
		for _, c := range chunk.Choices {
			text += c.Delta.Content
		}
	}
	return text, 0, nil
}

// The real model answers; streamed, alone, in a crowd and from the cache the text is the same; who goes away frees the
// place.
func TestRealModel(t *testing.T) {
	r := real{realserver.Start(t, runtime.ModelOptions{ContextTokens: 1024, Slots: 4})}
	ctx := t.Context()
	const question, seeded = "What is the capital of France?", `,"temperature":0.9,"seed":7`
	whole, _, err := r.chat(ctx, 12, question, `,"temperature":0`)
	require.NoError(t, err)
	require.Contains(t, whole, "Paris")
	again, cached, err := r.chat(ctx, 12, question, `,"temperature":0`)
	require.NoError(t, err)
	require.Equal(t, whole, again)
	require.Positive(t, cached)
	streamed, _, err := r.chat(ctx, 12, question, `,"temperature":0,"stream":true`)
	require.NoError(t, err)
	require.Equal(t, whole, streamed)
	stopped, _, err := r.chat(ctx, 12, question, `,"temperature":0,"stop":["Paris"],"stream":true`)
	require.NoError(t, err)
	require.Equal(t, whole[:strings.Index(whole, "Paris")], stopped)

	alone, _, err := r.chat(ctx, 8, "Write a poem about the sea.", seeded)
	require.NoError(t, err)
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			content, more, want := "Write a poem about the sea.", seeded, alone
			if i%2 == 1 {
				content, more, want = question, `,"temperature":0,"stream":true`, streamed
			}
			n := map[bool]int{true: 12, false: 8}[i%2 == 1]
			got, _, err := r.chat(ctx, n, content, more)
			if err != nil || got != want {
				t.Errorf("in a crowd: %q, %v, want %q", got, err, want)
			}
		})
	}
	group.Wait()

	// A client that goes away.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, _, err = r.chat(short, 900, "Count to one thousand.", `,"temperature":0,"logit_bias":{"2":-100}`) // the end token never comes
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { s := r.Model.Stats(); return s.Running+s.Waiting == 0 }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, r.Stop())
}
