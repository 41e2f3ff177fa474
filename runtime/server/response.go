package server

import (
	"encoding/json"
	"net/http"

	"mlxcel/runtime"
	"mlxcel/runtime/chat"
)

// response is the object of the Responses API.
type response struct {
	ID                 string             `json:"id"`
	Object             string             `json:"object"`
	CreatedAt          int64              `json:"created_at"`
	Status             string             `json:"status"`
	Background         bool               `json:"background"`
	Error              any                `json:"error"`
	IncompleteDetails  *incompleteDetails `json:"incomplete_details"`
	Instructions       *string            `json:"instructions"`
	MaxOutputTokens    *int               `json:"max_output_tokens"`
	Model              string             `json:"model"`
	Output             []outputItem       `json:"output"`
	ParallelToolCalls  bool               `json:"parallel_tool_calls"`
	PreviousResponseID *string            `json:"previous_response_id"`
	Reasoning          reasoningSettings  `json:"reasoning"`
	Store              bool               `json:"store"`
	Temperature        float64            `json:"temperature"`
	Text               textSettings       `json:"text"`
	ToolChoice         string             `json:"tool_choice"`
	Tools              []json.RawMessage  `json:"tools"`
	TopP               float64            `json:"top_p"`
	Truncation         string             `json:"truncation"`
	Usage              *responseUsage     `json:"usage"`
	User               *string            `json:"user"`
	Metadata           map[string]string  `json:"metadata"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

type reasoningSettings struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type textSettings struct {
	Format map[string]string `json:"format"`
}

type responseUsage struct {
	InputTokens   int               `json:"input_tokens"`
	InputDetails  promptDetails     `json:"input_tokens_details"`
	OutputTokens  int               `json:"output_tokens"`
	OutputDetails completionDetails `json:"output_tokens_details"`
	TotalTokens   int               `json:"total_tokens"`
}

// outputItem is a message, a call or the reasoning; which fields it has depends on that.
type outputItem struct {
	Type      string        `json:"type"`
	ID        string        `json:"id"`
	Status    string        `json:"status"`
	Role      string        `json:"role,omitempty"`      // of a message
	Content   *[]outputPart `json:"content,omitempty"`   // of a message and of reasoning
	Summary   *[]outputPart `json:"summary,omitempty"`   // of reasoning, always empty
	CallID    string        `json:"call_id,omitempty"`   // of a call
	Name      string        `json:"name,omitempty"`      // of a call
	Arguments *string       `json:"arguments,omitempty"` // of a call
}

type outputPart struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations *[]any `json:"annotations,omitempty"` // of a message's text, always empty
	Logprobs    *[]any `json:"logprobs,omitempty"`    // of a message's text, always empty
}

// States of responses and items.
const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
	failed     = "failed"
)

// newResponse is the response to a request, before anything came of it.
func (s *Server) newResponse(o *object, l *loaded, r runtime.Request, instructions string, effort *string, tools []json.RawMessage) response {
	orNil := func(field string) *string {
		if text, ok := o.text(field); ok {
			return &text
		}
		return nil
	}
	a := response{
		ID: s.newID("resp_"), Object: "response", CreatedAt: s.now().Unix(), Status: inProgress, Model: l.id, Output: []outputItem{},
		ParallelToolCalls: o.flag("parallel_tool_calls", true), PreviousResponseID: orNil("previous_response_id"),
		Reasoning: reasoningSettings{Effort: effort}, Store: o.flag("store", true), Temperature: r.Sampling.Temperature,
		Text: textSettings{map[string]string{"type": "text"}}, ToolChoice: "auto", Tools: tools, TopP: r.Sampling.TopP,
		Truncation: "disabled", User: orNil("user"), Metadata: metadata(o),
	}
	if choice, ok := o.text("tool_choice"); ok {
		a.ToolChoice = choice
	}
	if instructions != "" {
		a.Instructions = &instructions
	}
	if r.MaxTokens > 0 {
		a.MaxOutputTokens = &r.MaxTokens
	}
	if a.Tools == nil {
		a.Tools = []json.RawMessage{}
	}
	if a.TopP == 0 {
		a.TopP = 1
	}
	return a
}

func messageItem(id, status, text string) outputItem {
	content := []outputPart{}
	if status != inProgress {
		content = append(content, textPart(text))
	}
	return outputItem{Type: "message", ID: id, Status: status, Role: "assistant", Content: &content}
}

func reasoningItem(id, status, text string) outputItem {
	content := []outputPart{}
	if status != inProgress {
		content = append(content, outputPart{Type: "reasoning_text", Text: text})
	}
	return outputItem{Type: "reasoning", ID: id, Status: status, Content: &content, Summary: &[]outputPart{}}
}

func callItem(id, status, callID, name, arguments string) outputItem {
	return outputItem{Type: "function_call", ID: id, Status: status, CallID: callID, Name: name, Arguments: &arguments}
}

func textPart(text string) outputPart {
	return outputPart{Type: "output_text", Text: text, Annotations: &[]any{}, Logprobs: &[]any{}}
}

// finish fills in the end of a response.
func (a *response) finish(e *ending) {
	s := e.summary
	a.Status = completed
	if e.finish == finishLength {
		a.Status, a.IncompleteDetails = incomplete, &incompleteDetails{"max_output_tokens"}
	}
	a.Usage = &responseUsage{
		InputTokens: s.PromptTokens, InputDetails: promptDetails{s.CachedTokens},
		OutputTokens: s.Tokens, OutputDetails: completionDetails{e.reasoning}, TotalTokens: s.PromptTokens + s.Tokens,
	}
}

// message is what the assistant answered, for what follows.
func (a *response) message() runtime.Message {
	m := runtime.Message{Role: chat.Assistant}
	for _, item := range a.Output {
		switch item.Type {
		case "message":
			m.Content += (*item.Content)[0].Text
		case "reasoning":
			m.ReasoningContent += (*item.Content)[0].Text
		case "function_call":
			arguments, _ := json.Marshal(*item.Arguments) // a string
			m.ToolCalls = append(m.ToolCalls, chat.ToolCall{ID: item.CallID, Name: item.Name, Arguments: arguments})
		}
	}
	return m
}

// keep stores a response that has come to its end.
func (s *Server) keep(q *responsesRequest) {
	if !q.store {
		return
	}
	own := q.answer.message()
	messages := append(q.messages[:len(q.messages):len(q.messages)], own)
	s.stored.add(&storedResponse{
		response: q.answer, input: q.input, messages: messages,
		bytes: messageBytes(messages, q.input) + messageBytes([]runtime.Message{own}, nil), // which is output too
	})
}

// responseWhole answers at once: it makes the events of the stream and keeps their result.
func (s *Server) responseWhole(w http.ResponseWriter, r *http.Request, q *responsesRequest) error {
	b := &responseBuilder{server: s, request: q, send: func(string, map[string]any) error { return nil }}
	if err := s.run(r.Context(), q.work, b.add, func() error { return nil }); err != nil {
		return err
	}
	exchangeOf(r).note(b.end)
	s.keep(q)
	s.writeJSON(w, http.StatusOK, q.answer)
	return nil
}

// responseStream answers with events.
func (s *Server) responseStream(w http.ResponseWriter, r *http.Request, q *responsesRequest) error {
	stream := s.newEvents(w)
	number := 0
	send := func(name string, fields map[string]any) error {
		fields["type"], fields["sequence_number"] = name, number
		number++
		return stream.send(name, fields)
	}
	b := &responseBuilder{server: s, request: q, send: send}
	err := func() error {
		for _, name := range []string{"response.created", "response.in_progress"} {
			if err := send(name, map[string]any{"response": q.answer}); err != nil {
				return err
			}
		}
		if err := s.run(r.Context(), q.work, b.add, stream.comment); err != nil {
			return err
		}
		exchangeOf(r).note(b.end)
		s.keep(q)
		return send("response."+q.answer.Status, map[string]any{"response": q.answer})
	}()
	if err == nil || !stream.begun || abandoned(r, err) {
		return err
	}
	return s.streamError(r, err, func(e *apiError) error {
		q.answer.Status, q.answer.Error = failed, map[string]string{"code": e.code, "message": e.message}
		return send("response.failed", map[string]any{"response": q.answer})
	})
}
