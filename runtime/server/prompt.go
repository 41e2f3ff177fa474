package server

import (
	"encoding/json"
	"net/http"

	"mlxcel/runtime"
)

// chatWork makes work of a conversation: it renders the prompt and turns it into tokens.
func (s *Server) chatWork(l *loaded, messages []runtime.Message, tools toolbox, args map[string]any, r runtime.Request) (*work, error) {
	prompt, err := l.RenderChat(messages, tools.definitions, args)
	if err != nil {
		return nil, templateFault(err)
	}
	w := &work{
		model: l, request: r, choices: 1, prompt: prompt, markers: s.markers(l, tools.definitions != nil),
		calls: tools.calls(l), oneCall: tools.oneCall,
	}
	if w.request.Tokens, err = l.Tokenizer().Encode(prompt, false); err != nil { // templates write all special tokens out
		return nil, badField("messages", "cannot be turned into tokens: %v", err)
	}
	w.request.Visible = l.visible(w)
	return w, l.fits(w.request.Tokens, "messages")
}

// visible are the special tokens that the server must see in the text, to take reasoning and calls out of it.
func (l *loaded) visible(w *work) []int32 {
	var tokens []int32
	for _, marker := range append(w.calls.Markers(), w.markers.Open, w.markers.Close) {
		if id, ok := l.Tokenizer().TokenID(marker); ok && l.Tokenizer().IsSpecial(id) {
			tokens = append(tokens, id)
		}
	}
	return tokens
}

// fits checks the length of a prompt.
func (l *loaded) fits(tokens []int32, field string) error {
	switch most := l.Facts().MaxTokens; {
	case len(tokens) == 0:
		return badField(field, "is empty: want at least one token")
	case len(tokens) >= most:
		e := badField(field, "the prompt has %d tokens, and the context of %d must hold the answer too", len(tokens), most)
		e.code = "context_length_exceeded"
		return e
	}
	return nil
}

// templateFault says that a conversation cannot be rendered.
func templateFault(err error) error {
	if e := asAPIError(err); e.status != http.StatusInternalServerError {
		return e
	}
	return badField("messages", "the model's chat template cannot take them: %v", err)
}

// templateArgs reads what the template is told beside the messages.
func templateArgs(o *object) map[string]any {
	args := map[string]any{}
	if effort, ok := o.text("reasoning_effort"); ok {
		setEffort(args, o.word("reasoning_effort", effort, efforts...))
	}
	if v := o.raw("chat_template_kwargs"); v != nil && o.object("chat_template_kwargs") != nil {
		var more map[string]any
		_ = json.Unmarshal(v, &more) // it is an object
		for name, value := range more {
			if name == "messages" || name == "tools" || name == "add_generation_prompt" {
				o.bad("chat_template_kwargs", "%s has a field of its own", name)
			}
			args[name] = value
		}
	}
	return args
}

// efforts are how much thinking may be asked for.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// setEffort tells a template how much to think: some know a word for it, others only whether.
func setEffort(args map[string]any, effort string) {
	args["reasoning_effort"] = effort
	args["enable_thinking"] = effort != "none"
}
