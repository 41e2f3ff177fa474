package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is found in the text before the model sees it.
type addedToken struct {
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // not inside a word
	LStrip     bool   `json:"lstrip"`      // takes the white space before it along
	RStrip     bool   `json:"rstrip"`      // and after it
	Normalized bool   `json:"normalized"`  // searched for in the normalized text
	Special    bool   `json:"special"`     // left out of decoded text on demand

	id int32
}

// addedTokens holds them with two ways to search: in the raw text, and in the
// normalized text.
type addedTokens struct {
	byID       map[int32]*addedToken
	raw        finder
	normalized finder
}

func parseAddedTokens(raw json.RawMessage) ([]addedToken, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var list []addedToken
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	return list, nil
}

// newAddedTokens gives every token its id and puts new ones into the
// vocabulary. The id a file states is not used, as in the reference: a token
// that the model knows keeps the model's id, others are numbered from the end.
func newAddedTokens(list []addedToken, vocab *vocabulary, norm normalizers) (*addedTokens, error) {
	a := &addedTokens{
		byID:       make(map[int32]*addedToken, len(list)),
		raw:        newFinder(),
		normalized: newFinder(),
	}
	next := int32(len(vocab.ids))
	for i := range list {
		token := &list[i]
		if token.Content == "" {
			continue
		}
		id, known := vocab.id(token.Content)
		if !known {
			id = next
			vocab.set(token.Content, id)
		}
		next = max(next, id+1)
		token.id = id
		a.byID[id] = token
	}
	for i := range list {
		token := &list[i]
		if !token.Normalized {
			a.raw.add(token.Content, token)
			continue
		}
		text, err := norm.normalize(token.Content)
		if err != nil {
			return nil, fmt.Errorf("added token %q: %w", token.Content, err)
		}
		a.normalized.add(text, token)
	}
	return a, nil
}

func (a *addedTokens) isSpecial(id int32) bool {
	token := a.byID[id]
	return token != nil && token.Special
}

// part is a stretch of text: either one added token or text between them.
type part struct {
	piece
	token *addedToken // nil for text
}

// finder cuts texts at added tokens.
type finder struct {
	trie   *trie
	tokens []*addedToken // by the id used in the trie
	starts [256]bool     // bytes that a token can begin with
}

func newFinder() finder { return finder{trie: newTrie()} }

func (f *finder) add(text string, token *addedToken) {
	if text == "" {
		return
	}
	f.trie.insert(text, int32(len(f.tokens)))
	f.tokens = append(f.tokens, token)
	f.starts[text[0]] = true
}

// cut appends the parts of p: at each place the longest token wins.
func (f *finder) cut(dst []part, p piece) []part {
	text := p.text
	done := 0 // everything before it is in dst
	emit := func(end int) {
		if end > done {
			dst = append(dst, part{piece: piece{text[done:end], p.first && done == 0}})
		}
	}
	for pos := 0; pos < len(text); {
		token, length := f.at(text[pos:])
		if token == nil {
			pos++
			continue
		}
		start, end := pos, pos+length
		pos = end
		if token.SingleWord && insideWord(text, start, end) {
			continue
		}
		if token.LStrip {
			start = max(done, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
		}
		if token.RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
			pos = end
		}
		emit(start)
		dst = append(dst, part{token: token})
		done = end
	}
	emit(len(text))
	return dst
}

// at returns the token that text begins with, or nil.
func (f *finder) at(text string) (*addedToken, int) {
	if !f.starts[text[0]] {
		return nil, 0
	}
	index, length := f.trie.longest(text)
	if length == 0 {
		return nil, 0
	}
	return f.tokens[index], length
}

// insideWord tells whether text[start:end] touches a word character.
func insideWord(text string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[end:])
	return start > 0 && isWord(before) || end < len(text) && isWord(after)
}
