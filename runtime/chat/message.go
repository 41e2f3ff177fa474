package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"mlxcel/runtime/chat/jinja"
)

// Roles that models know. A template may know others.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
	Tool      = "tool"
)

// Message is one turn of a conversation. Its JSON form is that of OpenAI's chat
// API.
type Message struct {
	Role    string
	Content string
	// Parts are the content in parts. If there are any, Content is not looked at.
	Parts []Part
	// ReasoningContent is what an assistant thought before it answered. Most
	// templates leave it out of earlier turns.
	ReasoningContent string
	// ToolCalls are what an assistant wants called.
	ToolCalls []ToolCall
	// ToolCallID names the call that a message with the role "tool" answers.
	ToolCallID string
	// Name is the tool's name, or a participant's.
	Name string
}

// Part is a part of a message's content.
type Part struct {
	Type string `json:"type"` // "text"; others depend on the model
	Text string `json:"text,omitempty"`
}

// ToolCall is a call of a tool that a model asked for.
type ToolCall struct {
	ID   string
	Name string
	// Arguments are JSON: an object, or as in OpenAI's API a string that holds
	// one.
	Arguments json.RawMessage
}

// messageJSON is a Message in OpenAI's form.
type messageJSON struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Name             string          `json:"name,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        []toolCallJSON  `json:"tool_calls,omitempty"`
	ToolCallID       string          `json:"tool_call_id,omitempty"`
}

type toolCallJSON struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// UnmarshalJSON reads OpenAI's form. Content may be a string, null or a list of
// parts.
func (m *Message) UnmarshalJSON(data []byte) error {
	var in messageJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	if in.Role == "" {
		return errors.New(`message: "role" is missing`)
	}
	*m = Message{Role: in.Role, Name: in.Name, ReasoningContent: in.ReasoningContent, ToolCallID: in.ToolCallID}
	switch content := bytes.TrimSpace(in.Content); {
	case len(content) == 0 || string(content) == "null":
	case content[0] == '"':
		if err := json.Unmarshal(content, &m.Content); err != nil {
			return fmt.Errorf("message: content: %w", err)
		}
	default:
		if err := json.Unmarshal(content, &m.Parts); err != nil {
			return fmt.Errorf("message: content is neither a string nor a list of parts: %w", err)
		}
	}
	for _, c := range in.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	return nil
}

// MarshalJSON writes OpenAI's form, with the arguments of tool calls as a
// string.
func (m Message) MarshalJSON() ([]byte, error) {
	out := messageJSON{Role: m.Role, Name: m.Name, ReasoningContent: m.ReasoningContent, ToolCallID: m.ToolCallID}
	var err error
	switch {
	case len(m.Parts) > 0:
		out.Content, err = json.Marshal(m.Parts)
	case m.Content != "" || len(m.ToolCalls) == 0:
		out.Content, err = json.Marshal(m.Content)
	}
	if err != nil {
		return nil, err
	}
	for _, c := range m.ToolCalls {
		j := toolCallJSON{ID: c.ID, Type: "function"}
		j.Function.Name, j.Function.Arguments = c.Name, c.Arguments
		if args := bytes.TrimSpace(c.Arguments); len(args) == 0 || args[0] != '"' {
			if j.Function.Arguments, err = json.Marshal(string(args)); err != nil {
				return nil, err
			}
		}
		out.ToolCalls = append(out.ToolCalls, j)
	}
	return json.Marshal(out)
}

// text is the message's content as one string, its parts put together with nothing
// between, and false if a part is no text.
func (m Message) text() (string, bool) {
	if len(m.Parts) == 0 {
		return m.Content, true
	}
	var b strings.Builder
	for _, p := range m.Parts {
		if p.Type != "text" {
			return "", false
		}
		b.WriteString(p.Text)
	}
	return b.String(), true
}

// value is the message as templates know it. What is empty is left out, since
// they ask with "is defined"; content is always there.
func (m Message) value(asParts bool) (*jinja.Dict, error) {
	d := jinja.NewDict()
	d.Set("role", m.Role)
	if asParts {
		d.Set("content", m.partsValue())
	} else {
		text, ok := m.text()
		if !ok {
			return nil, errors.New("a message has a part that is no text, and the model's chat template takes text only")
		}
		d.Set("content", text)
	}
	if m.Name != "" {
		d.Set("name", m.Name)
	}
	if m.ReasoningContent != "" {
		d.Set("reasoning_content", m.ReasoningContent)
		d.Set("thinking", m.ReasoningContent) // gpt-oss has this name for it
	}
	if len(m.ToolCalls) > 0 {
		calls := make([]any, len(m.ToolCalls))
		for i, c := range m.ToolCalls {
			var err error
			if calls[i], err = c.value(); err != nil {
				return nil, err
			}
		}
		d.Set("tool_calls", jinja.NewList(calls...))
	}
	if m.ToolCallID != "" {
		d.Set("tool_call_id", m.ToolCallID)
	}
	return d, nil
}

func (m Message) partsValue() *jinja.List {
	parts := m.Parts
	if len(parts) == 0 {
		parts = []Part{{Type: "text", Text: m.Content}}
	}
	list := make([]any, len(parts))
	for i, p := range parts {
		d := jinja.NewDict()
		d.Set("type", p.Type)
		if p.Type == "text" {
			d.Set("text", p.Text)
		}
		list[i] = d
	}
	return jinja.NewList(list...)
}

func (c ToolCall) value() (*jinja.Dict, error) {
	arguments, err := c.argumentsValue()
	if err != nil {
		return nil, fmt.Errorf("arguments of tool call %q: %w", c.Name, err)
	}
	function := jinja.NewDict()
	function.Set("name", c.Name)
	function.Set("arguments", arguments)
	d := jinja.NewDict()
	if c.ID != "" {
		d.Set("id", c.ID)
	}
	d.Set("type", "function")
	d.Set("function", function)
	return d, nil
}

// argumentsValue unwraps a string that holds an object, since templates want
// the object. Text that is no JSON is what a model really wrote: it stays text.
func (c ToolCall) argumentsValue() (any, error) {
	if len(bytes.TrimSpace(c.Arguments)) == 0 {
		return jinja.NewDict(), nil
	}
	v, err := jinja.ParseJSON(c.Arguments)
	if err != nil {
		return nil, err
	}
	if text, ok := v.(string); ok {
		if inner, err := jinja.ParseJSON([]byte(text)); err == nil {
			if object, ok := inner.(*jinja.Dict); ok {
				return object, nil
			}
		}
	}
	return v, nil
}
