package server

import (
	"net/http"
	"strings"
	"unicode/utf8"
)

// health answers GET /health: 200 when requests are answered, or 503 with the reason why not.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	if _, err := s.model(); err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// props answers GET /props with what llama-server's clients ask for: the context, the template, the defaults.
func (s *Server) props(w http.ResponseWriter, _ *http.Request) error {
	l, err := s.model()
	if err != nil {
		return err
	}
	template, _ := l.ChatTemplate(false) // a broken one is shown as none
	sampling := s.options.Sampling
	s.writeJSON(w, http.StatusOK, map[string]any{
		"default_generation_settings": map[string]any{
			"n_ctx": l.Facts().MaxTokens,
			"params": map[string]any{
				"n_predict": max(s.options.MaxTokens, 0), "temperature": sampling.Temperature, "top_k": sampling.TopK, "top_p": sampling.TopP,
				"min_p": sampling.MinP, "repeat_penalty": sampling.RepetitionPenalty, "presence_penalty": sampling.PresencePenalty,
				"frequency_penalty": sampling.FrequencyPenalty,
			},
		},
		"total_slots":   len(l.Stats().Slots),
		"model_alias":   l.id,
		"chat_template": template,
		"bos_token":     l.SpecialToken("bos_token"),
		"eos_token":     l.SpecialToken("eos_token"),
		"build_info":    s.options.Build,
		"modalities":    map[string]bool{"vision": false, "audio": false},
	})
	return nil
}

// slots answers GET /slots: what the engine keeps, without anyone's text.
func (s *Server) slots(w http.ResponseWriter, _ *http.Request) error {
	l, err := s.model()
	if err != nil {
		return err
	}
	list := []map[string]any{}
	for i, slot := range l.Stats().Slots {
		list = append(list, map[string]any{"id": i, "n_ctx": l.Facts().MaxTokens, "is_processing": slot.Busy, "n_tokens": slot.Tokens})
	}
	s.writeJSON(w, http.StatusOK, list)
	return nil
}

// tokenize answers POST /tokenize.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	l, o, err := s.open(w, r)
	if err != nil {
		return err
	}
	text := o.required("content")
	special, pieces := o.flag("add_special", false), o.flag("with_pieces", false)
	if !o.flag("parse_special", true) {
		o.fail(notYet("parse_special", "reading special tokens as plain text is not possible: want true"))
	}
	if err := o.Err(); err != nil {
		return err
	}
	done, err := s.admit(1)
	if err != nil {
		return err
	}
	defer done()
	ids, err := l.Tokenizer().Encode(text, special)
	if err != nil {
		return badField("content", "cannot be turned into tokens: %v", err)
	}
	var tokens any = ids
	if pieces {
		tokens = l.pieces(ids)
	}
	s.writeJSON(w, http.StatusOK, map[string]any{"tokens": tokens})
	return nil
}

// pieces are tokens with their texts; one that is only a part of a character has its bytes in place of it.
func (l *loaded) pieces(ids []int32) []map[string]any {
	list := make([]map[string]any, len(ids))
	for i, id := range ids {
		var piece any = l.tokenText(id)
		if raw := l.tokenBytes(id); raw != nil && !utf8.Valid(raw) {
			bytes := make([]int, len(raw))
			for i, b := range raw {
				bytes[i] = int(b)
			}
			piece = bytes
		}
		list[i] = map[string]any{"id": id, "piece": piece}
	}
	return list
}

// detokenize answers POST /detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	l, o, err := s.open(w, r)
	if err != nil {
		return err
	}
	if !o.has("tokens") {
		o.missing("tokens", "an array of token ids")
	}
	ids := tokenIDs(o, "tokens", o.list("tokens", 1<<20), l.vocab)
	if err := o.Err(); err != nil {
		return err
	}
	s.writeJSON(w, http.StatusOK, map[string]string{"content": l.Tokenizer().Decode(ids, false)})
	return nil
}

// applyTemplate answers POST /apply-template with the prompt that a chat becomes.
func (s *Server) applyTemplate(w http.ResponseWriter, r *http.Request) error {
	l, o, err := s.open(w, r)
	if err != nil {
		return err
	}
	messages := s.messages(o, l)
	box := tools(o)
	args := templateArgs(o)
	if err := o.Err(); err != nil {
		return err
	}
	prompt, err := l.RenderChat(messages, box.definitions, args)
	if err != nil {
		return templateFault(err)
	}
	s.writeJSON(w, http.StatusOK, map[string]string{"prompt": strings.ToValidUTF8(prompt, "\uFFFD")})
	return nil
}
