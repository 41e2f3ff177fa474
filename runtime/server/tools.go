package server

import (
	"encoding/json"
	"strconv"

	"mlxcel/runtime/server/toolcall"
)

const maxTools = 512

// toolbox is what a request offers the model to call.
type toolbox struct {
	definitions json.RawMessage // for the template; nil: none
	oneCall     bool            // more than one call at once is not wanted
}

// tools reads tools, tool_choice and parallel_tool_calls of the chat API.
func tools(o *object) toolbox {
	var definitions []json.RawMessage
	for i, e := range o.list("tools", maxTools) {
		t := o.asObject(at("tools", i), e)
		if t == nil {
			break
		}
		functionOnly(t)
		f := t.object("function")
		if f == nil {
			t.missing("function", "an object")
			break
		}
		function(f)
		definitions = append(definitions, e)
	}
	absent(o, map[string]string{
		"functions": "is OpenAI's old form: use tools", "function_call": "is OpenAI's old form: use tool_choice",
	})
	return box(o, definitions)
}

// functionOnly checks the type of a tool.
func functionOnly(t *object) {
	if kind := t.required("type"); kind != "function" {
		t.fail(notYet(t.name("type"), `want "function", got %s: the server has no tools of its own`, shorten(kind)))
	}
}

// function checks the definition of a function.
func function(f *object) {
	if name := f.required("name"); name == "" {
		f.bad("name", "want the name of a function, got an empty one")
	}
	f.text("description")
	f.object("parameters")
	f.flag("strict", false) // the answer is not held to it: neither is it by OpenAI unless asked, and calls are checked anyway
}

// box reads how tools are to be chosen.
func box(o *object, definitions []json.RawMessage) toolbox {
	b := toolbox{oneCall: !o.flag("parallel_tool_calls", true)}
	const field = "tool_choice"
	v := o.raw(field)
	choice := "auto"
	switch {
	case v == nil:
	case v[0] == '{':
		o.fail(notYet(field, `a choice of certain tools is not possible yet: want "auto" or "none"`))
	case v[0] != '"':
		o.wrongType(field, `"auto" or "none"`)
	default:
		if choice, _ = o.text(field); choice == "required" {
			o.fail(notYet(field, `"required" is not possible yet: want "auto" or "none"`))
		} else if choice != "auto" && choice != "none" {
			o.bad(field, `want "auto" or "none", got %s`, shorten(choice))
		}
	}
	// With "none" the model is not told of the tools, so that it does not call them.
	if choice == "auto" && len(definitions) > 0 {
		b.definitions, _ = json.Marshal(definitions) // they are valid JSON
	}
	return b
}

// calls is the format to look for calls in.
func (b toolbox) calls(l *loaded) toolcall.Format {
	if b.definitions == nil {
		return toolcall.None
	}
	return l.calls
}

// callID makes the id of a call. Mistral's templates take nothing but nine letters and digits.
func (s *Server) callID(f toolcall.Format) string {
	if f == toolcall.Mistral {
		return s.newID("")[:9]
	}
	return s.newID("call_")
}

// responseFormat refuses formats of answers that the server cannot give: an answer that only may be JSON is worse than
// none.
func responseFormat(o *object, field string) {
	f := o.object(field)
	if f == nil {
		return
	}
	switch kind := f.required("type"); kind {
	case "text":
	case "json_object", "json_schema":
		f.fail(notYet(o.name(field), "answers of the type %s are not possible yet: want \"text\"", strconv.Quote(kind)))
	default:
		if *f.err == nil {
			f.bad("type", `want "text", got %s`, shorten(kind))
		}
	}
}
