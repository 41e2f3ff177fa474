package server

import (
	"encoding/json"

	"mlxcel/runtime"
	"mlxcel/runtime/chat"
)

// inputItems reads the input of the Responses API: a text, or items. It returns them as they came, with ids, and as
// messages.
func (s *Server) inputItems(o *object, l *loaded) (items []any, messages []runtime.Message) {
	const field, want = "input", "a string or an array of items"
	v := o.raw(field)
	switch {
	case v == nil:
		o.missing(field, want)
		return nil, nil
	case v[0] == '"':
		text, _ := o.text(field)
		item := map[string]any{
			"type": "message", "id": s.newID("msg_"), "role": "user", "status": "completed",
			"content": []map[string]string{{"type": "input_text", "text": text}},
		}
		return []any{item}, []runtime.Message{{Role: chat.User, Content: text}}
	case v[0] != '[':
		o.wrongType(field, want)
		return nil, nil
	}
	list := o.list(field, s.options.MaxMessages)
	if list != nil && len(list) == 0 {
		o.bad(field, "want at least one item, got none")
	}
	c := &conversation{}
	for i, e := range list {
		if item := o.asObject(at(field, i), e); item != nil {
			c.add(item, l)
			items = append(items, e)
		}
	}
	return items, c.messages // reasoning that no message followed is left out
}

// conversation puts items together into messages: reasoning and calls belong to the message of the assistant that they
// stand beside.
type conversation struct {
	messages  []runtime.Message
	reasoning string // waits for its message
}

func (c *conversation) add(item *object, l *loaded) {
	kind, ok := item.text("type")
	if !ok {
		kind = "message"
	}
	switch kind {
	case "message":
		c.message(item, l)
	case "function_call":
		call := chat.ToolCall{ID: item.required("call_id"), Name: item.required("name"), Arguments: arguments(item)}
		m := c.assistant()
		m.ToolCalls = append(m.ToolCalls, call)
	case "function_call_output":
		m := runtime.Message{Role: chat.Tool, ToolCallID: item.required("call_id")}
		if !item.has("output") {
			item.missing("output", "a string")
		}
		m.Content, m.Parts = content(item, "output", "input_text", "output_text", "text")
		c.messages = append(c.messages, m)
	case "reasoning":
		_, parts := content(item, "content", "reasoning_text", "text")
		for _, p := range parts {
			c.reasoning += p.Text
		}
	default:
		item.fail(notYet(item.name("type"), "want message, function_call, function_call_output or reasoning, got %s", shorten(kind)))
	}
}

func (c *conversation) message(item *object, l *loaded) {
	m := runtime.Message{Role: role(item.word("role", "", "system", "developer", "user", "assistant"), l)}
	if m.Role == "" {
		item.missing("role", "a string")
	}
	m.Content, m.Parts = content(item, "content", "input_text", "output_text", "text", "refusal")
	if m.Role == chat.Assistant {
		m.ReasoningContent, c.reasoning = c.reasoning, ""
	}
	c.messages = append(c.messages, m)
}

// assistant is the message that a call belongs to: the last one, if the assistant wrote it.
func (c *conversation) assistant() *runtime.Message {
	if last := len(c.messages) - 1; last >= 0 && c.messages[last].Role == chat.Assistant && c.reasoning == "" {
		return &c.messages[last]
	}
	c.messages = append(c.messages, runtime.Message{Role: chat.Assistant, ReasoningContent: c.reasoning})
	c.reasoning = ""
	return &c.messages[len(c.messages)-1]
}

// messageBytes is about how much memory messages and items take.
func messageBytes(messages []runtime.Message, items []any) int64 {
	const overhead = 256
	var n int64
	for _, m := range messages {
		n += overhead + int64(len(m.Content)+len(m.ReasoningContent)+len(m.Name)+len(m.ToolCallID))
		for _, p := range m.Parts {
			n += overhead + int64(len(p.Text))
		}
		for _, c := range m.ToolCalls {
			n += overhead + int64(len(c.ID)+len(c.Name)+len(c.Arguments))
		}
	}
	for _, i := range items {
		if raw, ok := i.(json.RawMessage); ok {
			n += overhead + int64(len(raw))
		}
	}
	return n
}
