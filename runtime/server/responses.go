package server

import (
	"encoding/json"
	"maps"
	"net/http"

	"github.com/gorilla/mux"

	"mlxcel/runtime"
	"mlxcel/runtime/chat"
)

// responsesRequest is a request to the Responses API that was checked.
type responsesRequest struct {
	*work
	stream   bool
	store    bool
	answer   response // with everything but what comes of it
	input    []any
	messages []runtime.Message // without instructions, which count for one response only
}

// responses answers POST /v1/responses.
func (s *Server) responses(w http.ResponseWriter, r *http.Request) error {
	request, done, err := s.responsesRequest(w, r)
	if err != nil {
		return err
	}
	defer done()
	if request.stream {
		return s.responseStream(w, r, request)
	}
	return s.responseWhole(w, r, request)
}

func (s *Server) responsesRequest(w http.ResponseWriter, r *http.Request) (_ *responsesRequest, done func(), err error) {
	l, o, err := s.open(w, r)
	if err != nil {
		return nil, nil, err
	}
	l.named(o)
	q := &responsesRequest{stream: o.flag("stream", false), store: o.flag("store", true)}
	if options := o.object("stream_options"); options != nil {
		options.flag("include_obfuscation", false)
	}
	q.messages = s.history(o)
	items, added := s.inputItems(o, l)
	q.input, q.messages = items, append(q.messages[:len(q.messages):len(q.messages)], added...)
	box, definitions := responseTools(o)
	args := map[string]any{}
	effort := reasoningOptions(o, args)
	maps.Copy(args, templateArgs(o))
	wanted := runtime.Request{MaxTokens: limit(o, s.options.MaxTokens, "max_output_tokens"), Sampling: s.sampling(o, l)}
	instructions, _ := o.text("instructions")
	q.answer = s.newResponse(o, l, wanted, instructions, effort, definitions)
	responseRest(o)
	if err := o.Err(); err != nil {
		return nil, nil, err
	}
	messages := q.messages
	if instructions != "" {
		messages = append([]runtime.Message{{Role: chat.System, Content: instructions}}, messages...)
	}
	if done, err = s.admit(1); err != nil {
		return nil, nil, err
	}
	if q.work, err = s.chatWork(l, messages, box, args, wanted); err != nil {
		done()
		return nil, nil, err
	}
	return q, done, nil
}

// history are the messages of the response that a request continues.
func (s *Server) history(o *object) []runtime.Message {
	const field = "previous_response_id"
	id, ok := o.text(field)
	if !ok {
		return nil
	}
	stored := s.stored.get(id)
	if stored == nil {
		e := badField(field, "there is no response %s, or it is not kept any more", shorten(id))
		e.status, e.code = http.StatusNotFound, "previous_response_not_found"
		o.fail(e)
		return nil
	}
	return stored.messages
}

// reasoningOptions reads how much to think.
func reasoningOptions(o *object, args map[string]any) (effort *string) {
	options := o.object("reasoning")
	if options == nil {
		return nil
	}
	for _, field := range []string{"summary", "generate_summary"} {
		options.word(field, "", "auto", "concise", "detailed") // the whole reasoning is given anyway
	}
	if word, ok := options.text("effort"); ok {
		setEffort(args, options.word("effort", word, efforts...))
		return &word
	}
	return nil
}

// responseTools reads tools, whose functions lie flat in this API, and turns them into the chat API's form, which
// templates know.
func responseTools(o *object) (toolbox, []json.RawMessage) {
	var given, definitions []json.RawMessage
	for i, e := range o.list("tools", maxTools) {
		t := o.asObject(at("tools", i), e)
		if t == nil {
			break
		}
		functionOnly(t)
		function(t)
		definition, _ := json.Marshal(toolDefinition{"function", functionDefinition{ // of valid JSON
			t.raw("name"), t.raw("description"), t.raw("parameters"), t.raw("strict"),
		}})
		given, definitions = append(given, e), append(definitions, definition)
	}
	return box(o, definitions), given
}

// toolDefinition is a tool in the chat API's form, its fields in the order that models know.
type toolDefinition struct {
	Type     string             `json:"type"`
	Function functionDefinition `json:"function"`
}

type functionDefinition struct {
	Name        json.RawMessage `json:"name"`
	Description json.RawMessage `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      json.RawMessage `json:"strict,omitempty"`
}

// responseRest checks the fields that say nothing about an answer, and refuses those that cannot be followed.
func responseRest(o *object) {
	about(o)
	o.word("truncation", "disabled", "disabled", "auto")
	if v, _ := o.text("truncation"); v == "auto" {
		o.fail(notYet("truncation", `leaving out earlier messages is not possible: want "disabled"`))
	}
	if o.flag("background", false) {
		o.fail(notYet("background", "answers in the background are not possible: want false"))
	}
	if n, ok := o.integer("top_logprobs", 0, maxTopLogprobs); ok && n > 0 {
		o.fail(notYet("top_logprobs", "is not there yet in this API: use /v1/chat/completions"))
	}
	for i, e := range o.list("include", 16) {
		if kindOf(e) != "a string" {
			o.bad(at("include", i), "want a string, got %s", kindOf(e))
		} else if string(e) == `"message.output_text.logprobs"` {
			o.fail(notYet(at("include", i), "log-probabilities are not there yet in this API: use /v1/chat/completions"))
		}
	}
	o.integer("max_tool_calls", 1, maxTokens)
	if text := o.object("text"); text != nil {
		responseFormat(text, "format")
		text.word("verbosity", "", "low", "medium", "high")
	}
	absent(o, map[string]string{
		"conversation": "use previous_response_id", "prompt": "the server keeps no templates of prompts",
	})
}

// getResponse answers GET /v1/responses/{id}.
func (s *Server) getResponse(w http.ResponseWriter, r *http.Request) error {
	stored, err := s.kept(r)
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, stored.response)
	return nil
}

// getResponseInput answers GET /v1/responses/{id}/input_items.
func (s *Server) getResponseInput(w http.ResponseWriter, r *http.Request) error {
	stored, err := s.kept(r)
	if err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": stored.input, "has_more": false})
	return nil
}

// deleteResponse answers DELETE /v1/responses/{id}.
func (s *Server) deleteResponse(w http.ResponseWriter, r *http.Request) error {
	id := mux.Vars(r)["id"]
	if !s.stored.remove(id) {
		return noResponse(r)
	}
	s.writeJSON(w, http.StatusOK, map[string]any{"id": id, "object": "response", "deleted": true})
	return nil
}

// kept is the response that a path names.
func (s *Server) kept(r *http.Request) (*storedResponse, error) {
	if stored := s.stored.get(mux.Vars(r)["id"]); stored != nil {
		return stored, nil
	}
	return nil, noResponse(r)
}

func noResponse(r *http.Request) error {
	e := badRequest(http.StatusNotFound, "response_not_found", "there is no response %s, or it is not kept any more", shorten(mux.Vars(r)["id"]))
	e.param = "response_id"
	return e
}
