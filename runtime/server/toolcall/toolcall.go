// Package toolcall finds the calls of tools in the text that a model writes, while it streams in.
//
// Models write a call as text of a form that they were trained on. A [Parser] takes such text apart into calls and what
// is not part of any. A call is given out when it is whole, since only then is it certain that it is one: what looks
// like a call and is malformed stays text, to the letter. However the text is cut into pieces, the result is the same.
package toolcall

import (
	"encoding/json"
	"strings"
)

// Format is the form that a model writes calls in.
type Format int

// The formats.
const (
	// None finds no calls: all is text.
	None Format = iota
	// Hermes is what Qwen, Hermes and many others write: <tool_call>{"name": …, "arguments": {…}}</tool_call>, once a call.
	Hermes
	// Llama3 is a text that consists of {"name": …, "parameters": {…}}, several separated by semicolons, or that has
	// them behind <|python_tag|>.
	Llama3
	// Mistral is [TOOL_CALLS] before a list of {"name": …, "arguments": {…}}, or before name[ARGS]{…}, once a call.
	Mistral
)

// Markers of the formats.
const (
	hermesOpen   = "<tool_call>"
	hermesClose  = "</tool_call>"
	llamaOpen    = "<|python_tag|>"
	mistralOpen  = "[TOOL_CALLS]"
	mistralArgs  = "[ARGS]"
	mistralID    = "[CALL_ID]"
	callSpace    = " \t\r\n"
	maxNameBytes = 256
	maxHeadBytes = 2 * maxNameBytes // name[CALL_ID]id[ARGS]
)

// Detect says which format a chat template tells the model to write; [Hermes], the most common one, where the template
// names none.
func Detect(template string) Format {
	switch {
	case strings.Contains(template, mistralOpen):
		return Mistral
	case strings.Contains(template, hermesOpen):
		return Hermes
	case strings.Contains(template, llamaOpen), strings.Contains(template, `"parameters": dictionary of argument name`):
		return Llama3
	}
	return Hermes
}

// Markers are the texts that the format puts around calls. Some models have them as special tokens.
func (f Format) Markers() []string {
	switch f {
	case Hermes:
		return []string{hermesOpen, hermesClose}
	case Llama3:
		return []string{llamaOpen}
	case Mistral:
		return []string{mistralOpen, mistralArgs, mistralID}
	}
	return nil
}

// Call is a call of a tool.
type Call struct {
	Name      string
	Arguments string // a JSON object, spelled as the model spelled it
}

// Item is a piece of text, or a call.
type Item struct {
	Text string
	Call *Call // nil: text
}

// parseCall reads an object that should be a call.
func parseCall(object []byte) (*Call, bool) {
	var c struct {
		Name       *string         `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(object, &c) != nil || c.Name == nil || *c.Name == "" || len(*c.Name) > maxNameBytes {
		return nil, false
	}
	arguments := c.Arguments
	if arguments == nil {
		arguments = c.Parameters
	}
	text, ok := argumentsText(arguments)
	return &Call{*c.Name, text}, ok
}

// argumentsText returns an object's text. Some models put the object into a string, some leave it out if it is empty.
func argumentsText(v json.RawMessage) (string, bool) {
	if len(v) == 0 || string(v) == "null" {
		return "{}", true
	}
	if v[0] == '"' {
		var inner string
		if json.Unmarshal(v, &inner) != nil {
			return "", false
		}
		v = json.RawMessage(strings.Trim(inner, callSpace))
	}
	return string(v), len(v) > 0 && v[0] == '{' && json.Valid(v)
}

// parseCalls reads a list of calls, all of which must be right.
func parseCalls(list []byte) ([]*Call, bool) {
	var objects []json.RawMessage
	if json.Unmarshal(list, &objects) != nil || len(objects) == 0 {
		return nil, false
	}
	calls := make([]*Call, len(objects))
	for i, o := range objects {
		var ok bool
		if calls[i], ok = parseCall(o); !ok {
			return nil, false
		}
	}
	return calls, true
}
