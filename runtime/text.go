package runtime

import (
	"strings"

	"mlxcel/runtime/tokenizer"
)

// textStream turns tokens into text and looks for stop texts across the borders of tokens.
type textStream struct {
	decoder *tokenizer.Decoder // nil: no text
	visible map[int32]string   // special tokens that are written out
	stops   []string
	held    string // may be the beginning of a stop text
	stopped bool
}

// add returns the text that became certain with a token, and whether a stop text has been met: then the text before it
// is the last.
func (t *textStream) add(token int32) (text string, stop bool) {
	if t.decoder == nil || t.stopped {
		return "", t.stopped
	}
	if spelling, ok := t.visible[token]; ok {
		return t.push(t.decoder.Flush() + spelling)
	}
	return t.push(t.decoder.Add(token))
}

func (t *textStream) push(text string) (string, bool) {
	t.held += text
	if i := t.find(); i >= 0 {
		text, t.held, t.stopped = t.held[:i], "", true
		return text, true
	}
	keep := t.partial()
	text, t.held = t.held[:len(t.held)-keep], t.held[len(t.held)-keep:]
	return text, false
}

// find is where the first stop text begins, -1 if there is none.
func (t *textStream) find() int {
	first := -1
	for _, s := range t.stops {
		if i := strings.Index(t.held, s); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

// partial is the length of the longest end of held that a stop text begins with.
func (t *textStream) partial() int {
	longest := 0
	for _, s := range t.stops {
		for n := min(len(s)-1, len(t.held)); n > longest; n-- {
			if strings.HasSuffix(t.held, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// flush returns what was held back, at the end of an answer.
func (t *textStream) flush() string {
	if t.decoder == nil || t.stopped {
		return ""
	}
	text, stop := t.push(t.decoder.Flush())
	if stop {
		return text
	}
	text += t.held
	t.held = ""
	return text
}
