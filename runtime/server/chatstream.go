package server

import (
	"errors"
	"net/http"
)

// chatDelta is what a chunk adds to a choice's message.
type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
}

// chatStream answers with events: a chunk with the role for each choice at once, chunks with text, one with the reason
// for the end, one with the usage if that is asked for, and [DONE].
func (s *Server) chatStream(w http.ResponseWriter, r *http.Request, c *chatRequest) error {
	stream := s.newEvents(w)
	head := s.newChatAnswer(c.model, "chat.completion.chunk")
	send := func(choice chatChoice) error {
		chunk := head
		chunk.Choices = []chatChoice{choice}
		return stream.send("", chunk)
	}
	return s.streamed(r, stream, func() error {
		empty := ""
		for i := range c.choices {
			if err := send(chatChoice{Index: i, Delta: &chatDelta{Role: "assistant", Content: &empty}}); err != nil {
				return err
			}
		}
		total := &usage{}
		called := make([]int, c.choices)
		err := s.run(r.Context(), c.work, func(d delta) error {
			if d.end != nil {
				total.add(d.end, d.choice)
				exchangeOf(r).note(d.end)
			}
			return s.sendDelta(c, d, &called[d.choice], send)
		}, stream.comment)
		if err != nil {
			return err
		}
		if !c.withUsage {
			return stream.done()
		}
		last := head
		last.Usage = total
		return errors.Join(stream.send("", last), stream.done())
	})
}

// sendDelta sends what became certain of a choice: each kind in a chunk of its own, as OpenAI does.
func (s *Server) sendDelta(c *chatRequest, d delta, called *int, send func(chatChoice) error) error {
	var chunks []chatChoice
	if d.reasoning != "" {
		chunks = append(chunks, chatChoice{Delta: &chatDelta{Reasoning: d.reasoning}})
	}
	if d.content != "" {
		chunks = append(chunks, chatChoice{Delta: &chatDelta{Content: &d.content}, Logprobs: c.model.logprobs(d.tokens)})
	}
	for _, call := range d.calls {
		index := *called
		*called++
		head := chatCall{Index: &index, ID: s.callID(c.calls), Type: "function", Function: chatFunction{Name: call.Name}}
		rest := chatCall{Index: &index, Function: chatFunction{Arguments: call.Arguments}}
		chunks = append(chunks, chatChoice{Delta: &chatDelta{ToolCalls: []chatCall{head}}}, chatChoice{Delta: &chatDelta{ToolCalls: []chatCall{rest}}})
	}
	if d.end != nil {
		chunks = append(chunks, chatChoice{Delta: &chatDelta{}, Finish: &d.end.finish})
	}
	for _, chunk := range chunks {
		chunk.Index = d.choice
		if err := send(chunk); err != nil {
			return err
		}
	}
	return nil
}

// streamed runs what writes a stream. An error that comes after the stream has begun is told within it.
func (s *Server) streamed(r *http.Request, stream *events, write func() error) error {
	err := write()
	if err == nil || !stream.begun || abandoned(r, err) {
		return err
	}
	return s.streamError(r, err, func(e *apiError) error {
		if err := stream.send("", map[string]any{"error": e}); err != nil {
			return err
		}
		return stream.done()
	})
}

// streamError tells a client within a stream that it ends with an error.
func (s *Server) streamError(r *http.Request, err error, send func(*apiError) error) error {
	e := asAPIError(err)
	exchangeOf(r).status = e.status // what the log and the metrics show
	return send(e)
}
