package server

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"

	"mlxcel/runtime"
)

// embedding is one vector of an answer. Its value is a list of numbers, or their bytes in base64.
type embedding struct {
	Object string `json:"object"`
	Index  int    `json:"index"`
	Value  any    `json:"embedding"`
}

// embeddings answers POST /v1/embeddings.
func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) error {
	l, o, err := s.open(w, r)
	if err != nil {
		return err
	}
	l.named(o)
	about(o)
	format := o.word("encoding_format", "float", "float", "base64")
	if o.has("dimensions") {
		o.fail(notYet("dimensions", "shorter vectors are not possible: want none"))
	}
	inputs := embeddingInputs(o, l)
	if err := o.Err(); err != nil {
		return err
	}
	if err := l.Embeds(); err != nil {
		return &apiError{
			status: http.StatusBadRequest, kind: invalidRequest, code: "no_embedding_model", param: "model",
			message: "model: " + l.id + ": " + err.Error() + ": it answers chats and completions",
		}
	}
	done, err := s.admit(len(inputs))
	if err != nil {
		return err
	}
	defer done()
	vectors, err := l.Embed(r.Context(), inputs)
	if err != nil {
		return err
	}
	var total usage
	list := make([]embedding, len(inputs))
	for i, v := range vectors {
		list[i] = embedding{"embedding", i, encodeVector(v, format)}
		total.PromptTokens += len(inputs[i])
	}
	exchangeOf(r).usage = total
	s.writeJSON(w, http.StatusOK, map[string]any{
		"object": "list", "data": list, "model": l.id,
		"usage": map[string]int{"prompt_tokens": total.PromptTokens, "total_tokens": total.PromptTokens},
	})
	return nil
}

// embeddingInputs reads what to embed: as prompts, under another name.
func embeddingInputs(o *object, l *loaded) [][]int32 {
	const field = "input"
	var inputs [][]int32
	for i, p := range prompts(o, field, l) {
		tokens := p.tokens
		if tokens == nil && p.text != "" {
			var err error
			if tokens, err = l.PromptTokens(runtime.Request{Prompt: p.text}); err != nil {
				o.bad(at(field, i), "cannot be turned into tokens: %v", err)
			}
		}
		if err := l.fits(tokens, field); err != nil && o.Err() == nil {
			o.fail(err)
		}
		inputs = append(inputs, tokens)
	}
	return inputs
}

// encodeVector puts a vector into the form that was asked for; base64 holds little-endian float32s.
func encodeVector(v []float32, format string) any {
	if format == "float" {
		return v
	}
	bytes := make([]byte, 0, 4*len(v))
	for _, f := range v {
		bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(bytes)
}
