package tokenizer

import "unicode/utf8"

// wordPiece takes the longest token that fits, again and again.
type wordPiece struct {
	vocab    *vocabulary
	unk      int32
	prefix   string // marks tokens inside a word
	maxChars int    // longer words are unknown
}

func (w *wordPiece) encode(dst []int32, word string) ([]int32, error) {
	start := len(dst)
	if utf8.RuneCountInString(word) > w.maxChars {
		return append(dst, w.unk), nil
	}
	for pos := 0; pos < len(word); {
		id, size := w.longest(word[pos:], pos > 0)
		if size == 0 {
			return append(dst[:start], w.unk), nil
		}
		dst = append(dst, id)
		pos += size
	}
	return dst, nil
}

// longest returns the longest token that text begins with; size 0: none.
func (w *wordPiece) longest(text string, inside bool) (id int32, size int) {
	prefix := ""
	if inside {
		prefix = w.prefix
	}
	for end := len(text); end > 0; {
		if id, ok := w.vocab.id(prefix + text[:end]); ok {
			return id, end
		}
		_, last := utf8.DecodeLastRuneInString(text[:end])
		end -= last
	}
	return 0, 0
}

// wordLevel knows whole words only.
type wordLevel struct {
	vocab *vocabulary
	unk   int32
}

func (w *wordLevel) encode(dst []int32, word string) ([]int32, error) {
	return append(dst, w.vocab.idOr(word, w.unk)), nil
}
