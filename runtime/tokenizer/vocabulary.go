package tokenizer

import (
	"fmt"
	"strings"
)

// vocabulary maps token texts to ids and back.
type vocabulary struct {
	ids    map[string]int32
	tokens []string // by id; "" where an id is not used
}

// idSlack is how far ids may run beyond what the number of tokens explains.
// Real files have small holes; a single absurd id must not cost gigabytes.
const idSlack = 1 << 16

func newVocabulary(texts []string, ids []int32) (*vocabulary, error) {
	size := 0
	for i, id := range ids {
		if id < 0 || int(id) > 2*len(ids)+idSlack {
			return nil, fmt.Errorf("token %q has id %d, which does not fit a vocabulary of %d tokens", texts[i], id, len(ids))
		}
		size = max(size, int(id)+1)
	}
	v := &vocabulary{
		ids:    make(map[string]int32, len(ids)),
		tokens: make([]string, size),
	}
	for i, text := range compact(texts) {
		v.set(text, ids[i])
	}
	return v, nil
}

// compact copies the texts into one block of memory, so that they do not keep
// the much larger file alive.
func compact(texts []string) []string {
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	var block strings.Builder
	block.Grow(size)
	for _, text := range texts {
		block.WriteString(text)
	}
	out := make([]string, len(texts))
	rest := block.String()
	for i, text := range texts {
		out[i], rest = rest[:len(text)], rest[len(text):]
	}
	return out
}

func (v *vocabulary) set(text string, id int32) {
	for int(id) >= len(v.tokens) {
		v.tokens = append(v.tokens, "")
	}
	v.ids[text] = id
	v.tokens[id] = text
}

func (v *vocabulary) id(text string) (int32, bool) {
	id, ok := v.ids[text]
	return id, ok
}

// idOr is id with a default.
func (v *vocabulary) idOr(text string, missing int32) int32 {
	if id, ok := v.ids[text]; ok {
		return id
	}
	return missing
}

func (v *vocabulary) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(v.tokens) {
		return "", false
	}
	text := v.tokens[id]
	if text == "" {
		empty, ok := v.ids[""]
		return "", ok && empty == id
	}
	return text, true
}
