package server

import (
	"net/http"
	"strings"

	"mlxcel/runtime"
)

// chatRequest is a request to the chat API that was checked.
type chatRequest struct {
	*work
	stream, withUsage bool
}

// chat answers POST /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) error {
	request, done, err := s.chatRequest(w, r)
	if err != nil {
		return err
	}
	defer done()
	if request.stream {
		return s.chatStream(w, r, request)
	}
	return s.chatWhole(w, r, request)
}

// chatRequest reads and checks a request. done must be called when it was answered.
func (s *Server) chatRequest(w http.ResponseWriter, r *http.Request) (_ *chatRequest, done func(), err error) {
	l, o, err := s.open(w, r)
	if err != nil {
		return nil, nil, err
	}
	l.named(o)
	c := &chatRequest{}
	messages := s.messages(o, l)
	box := tools(o)
	args := templateArgs(o)
	c.stream, c.withUsage = streaming(o)
	n := choices(o)
	wanted := runtime.Request{
		MaxTokens: limit(o, s.options.MaxTokens, "max_completion_tokens", "max_tokens"),
		Stop:      stops(o), Sampling: s.sampling(o, l), IgnoreEOS: o.flag("ignore_eos", false),
		Logprobs: o.flag("logprobs", false),
	}
	if top, ok := o.integer("top_logprobs", 0, maxTopLogprobs); ok {
		if wanted.TopLogprobs = int(top); !wanted.Logprobs {
			o.bad("top_logprobs", "is only allowed with logprobs: true")
		}
	}
	responseFormat(o, "response_format")
	chatRest(o)
	if err := o.Err(); err != nil {
		return nil, nil, err
	}
	if done, err = s.admit(n); err != nil {
		return nil, nil, err
	}
	if c.work, err = s.chatWork(l, messages, box, args, wanted); err != nil {
		done()
		return nil, nil, err
	}
	c.choices = n
	return c, done, nil
}

// chatRest checks the fields that say nothing about an answer, and refuses those that cannot be followed.
func chatRest(o *object) {
	about(o)
	o.flag("store", false)
	o.word("verbosity", "", "low", "medium", "high")
	for i, e := range o.list("modalities", 8) {
		if string(e) != `"text"` {
			o.fail(notYet(at("modalities", i), `the model gives text only: want "text"`))
		}
	}
	absent(o, map[string]string{
		"audio": "the model gives text only", "web_search_options": "the server has no tools of its own",
	})
}

// chatAnswer is the object of the chat API, whole or as a chunk of a stream.
type chatAnswer struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Fingerprint string       `json:"system_fingerprint"`
	Choices     []chatChoice `json:"choices"`
	Usage       *usage       `json:"usage,omitempty"`
}

type chatChoice struct {
	Index    int          `json:"index"`
	Message  *chatMessage `json:"message,omitempty"`
	Delta    *chatDelta   `json:"delta,omitempty"`
	Logprobs *logprobList `json:"logprobs"`
	Finish   *string      `json:"finish_reason"`
}

type chatMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
}

type chatCall struct {
	Index    *int         `json:"index,omitempty"` // in chunks
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

func (s *Server) newChatAnswer(l *loaded, object string) chatAnswer {
	return chatAnswer{
		ID: s.newID("chatcmpl-"), Object: object, Created: s.now().Unix(), Model: l.id, Fingerprint: s.options.Build,
		Choices: []chatChoice{},
	}
}

// chatWhole answers at once.
func (s *Server) chatWhole(w http.ResponseWriter, r *http.Request, c *chatRequest) error {
	type building struct {
		chatChoice
		content, reasoning strings.Builder
		tokens             []runtime.Piece
	}
	built := make([]building, c.choices)
	total := &usage{}
	err := s.run(r.Context(), c.work, func(d delta) error {
		b := &built[d.choice]
		b.content.WriteString(d.content)
		b.reasoning.WriteString(d.reasoning)
		b.tokens = append(b.tokens, d.tokens...)
		if b.Message == nil {
			b.Message = &chatMessage{Role: "assistant"}
		}
		for _, call := range d.calls {
			b.Message.ToolCalls = append(b.Message.ToolCalls, chatCall{
				ID: s.callID(c.calls), Type: "function", Function: chatFunction{call.Name, call.Arguments},
			})
		}
		if d.end != nil {
			b.Finish = &d.end.finish
			total.add(d.end, d.choice)
			exchangeOf(r).note(d.end)
		}
		return nil
	}, func() error { return nil })
	if err != nil {
		return err
	}
	answer := s.newChatAnswer(c.model, "chat.completion")
	answer.Usage = total
	for i := range built {
		b := &built[i]
		b.Index, b.Logprobs, b.Message.Reasoning = i, c.model.logprobs(b.tokens), b.reasoning.String()
		if text := b.content.String(); text != "" || len(b.Message.ToolCalls) == 0 {
			b.Message.Content = &text
		}
		answer.Choices = append(answer.Choices, b.chatChoice)
	}
	s.writeJSON(w, http.StatusOK, answer)
	return nil
}
