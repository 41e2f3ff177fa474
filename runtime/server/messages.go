package server

import (
	"encoding/json"
	"maps"
	"slices"

	"mlxcel/runtime"
	"mlxcel/runtime/chat"
)

const maxParts = 1024 // of a message, and calls of one

// messages reads a conversation.
func (s *Server) messages(o *object, l *loaded) []runtime.Message {
	const field = "messages"
	if !o.has(field) {
		o.missing(field, "an array of messages")
		return nil
	}
	list := o.list(field, s.options.MaxMessages)
	if list != nil && len(list) == 0 {
		o.bad(field, "want at least one message, got none")
	}
	var messages []runtime.Message
	for i, e := range list {
		if m := o.asObject(at(field, i), e); m != nil {
			messages = append(messages, message(m, l))
		}
	}
	return messages
}

// message reads one message of the chat API.
func message(o *object, l *loaded) runtime.Message {
	var m runtime.Message
	if !o.has("role") {
		o.missing("role", "a string")
	}
	m.Role = role(o.word("role", "", "system", "developer", "user", "assistant", "tool", "function"), l)
	m.Content, m.Parts = content(o, "content", "text", "refusal")
	m.Name, _ = o.text("name")
	m.ToolCallID, _ = o.text("tool_call_id")
	m.ReasoningContent, _ = o.text("reasoning_content")
	if m.ReasoningContent == "" {
		m.ReasoningContent, _ = o.text("reasoning")
	}
	for i, e := range o.list("tool_calls", maxParts) {
		if c := o.asObject(at("tool_calls", i), e); c != nil {
			m.ToolCalls = append(m.ToolCalls, toolCall(c))
		}
	}
	if len(m.ToolCalls) > 0 && m.Role != chat.Assistant {
		o.bad("tool_calls", "want them in messages of the role assistant only")
	}
	absent(o, map[string]string{"function_call": "is OpenAI's old form: use tool_calls", "audio": "the model takes text only"})
	return m
}

// role is a role as templates know it. Most know nothing of developers, who took the place of the system, nor of
// functions, which tools took the place of.
func role(r string, l *loaded) string {
	switch {
	case r == "developer" && !l.developer:
		return chat.System
	case r == "function":
		return chat.Tool
	}
	return r
}

// content reads a text, or parts that are all text, of the given types. A null is an empty text.
func content(o *object, field string, types ...string) (string, []chat.Part) {
	v := o.raw(field)
	switch {
	case v == nil:
		return "", nil
	case v[0] == '"':
		text, _ := o.text(field)
		return text, nil
	case v[0] != '[':
		o.wrongType(field, "a string or an array of parts")
		return "", nil
	}
	var parts []chat.Part
	for i, e := range o.list(field, maxParts) {
		p := o.asObject(at(field, i), e)
		if p == nil {
			break
		}
		kind := p.required("type")
		switch {
		case kind == "refusal" && slices.Contains(types, kind):
			parts = append(parts, chat.Part{Type: "text", Text: p.required("refusal")})
		case slices.Contains(types, kind):
			parts = append(parts, chat.Part{Type: "text", Text: p.required("text")})
		case slices.Contains([]string{"image_url", "input_image", "input_audio", "audio", "file", "input_file", "video_url"}, kind):
			p.fail(notYet(p.name("type"), "the model takes text only, got %s", shorten(kind)))
		case *p.err == nil:
			p.bad("type", "want %q, got %s", types[0], shorten(kind))
		}
	}
	return "", parts
}

// toolCall reads a call that the model made earlier.
func toolCall(o *object) chat.ToolCall {
	c := chat.ToolCall{}
	c.ID, _ = o.text("id")
	o.word("type", "function", "function")
	f := o.object("function")
	if f == nil {
		o.missing("function", "an object")
		return c
	}
	c.Name = f.required("name")
	c.Arguments = arguments(f)
	return c
}

// arguments reads what a call was made with: a text that should hold an object, or the object itself.
func arguments(o *object) json.RawMessage {
	const field = "arguments"
	v := o.raw(field)
	if v != nil && v[0] != '"' && v[0] != '{' {
		o.wrongType(field, "a string with a JSON object")
		return nil
	}
	return v
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
