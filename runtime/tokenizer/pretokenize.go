package tokenizer

import (
	"encoding/json"
	"errors"
	"unicode"
)

// piece is a stretch of text on its way to the model.
type piece struct {
	text  string
	first bool // it begins where the input begins
}

// preTokenizer cuts one piece into smaller ones and appends them to dst.
type preTokenizer interface {
	apply(dst []piece, p piece) ([]piece, error)
}

// preTokenizers run one after the other, each on what the one before made.
type preTokenizers []preTokenizer

func (list preTokenizers) apply(p piece) ([]piece, error) {
	pieces := []piece{p}
	for _, t := range list {
		next := make([]piece, 0, len(pieces))
		for _, p := range pieces {
			var err error
			if next, err = t.apply(next, p); err != nil {
				return nil, err
			}
		}
		pieces = next
	}
	return pieces, nil
}

func parsePreTokenizers(raw json.RawMessage) (preTokenizers, error) {
	list, err := components(raw, "pre_tokenizer", "pretokenizers")
	if err != nil {
		return nil, err
	}
	var out preTokenizers
	for _, c := range list {
		t, err := parsePreTokenizer(c)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func parsePreTokenizer(c component) (preTokenizer, error) {
	switch c.kind {
	case "Split":
		return newSplit(c)
	case "ByteLevel":
		return newByteLevel(c)
	case "Metaspace":
		return newMetaspace(c)
	case "Digits":
		return newDigits(c)
	case "Punctuation":
		return newPunctuation(c)
	case "Whitespace":
		return &split{pattern: runeRuns{isWord, isSymbol}, behavior: removed, invert: true}, nil
	case "WhitespaceSplit":
		return &split{pattern: runeClass(unicode.IsSpace), behavior: removed}, nil
	case "BertPreTokenizer":
		return bertPreTokenizer, nil
	case "CharDelimiterSplit":
		return newDelimiterSplit(c)
	}
	return nil, c.fail(errUnsupported)
}

func newDigits(c component) (preTokenizer, error) {
	var spec struct {
		Individual bool `json:"individual_digits"`
	}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	return digits(spec.Individual), nil
}

// digits separates numbers from the rest; individual: every digit on its own.
func digits(individual bool) *split {
	s := &split{pattern: runeClass(unicode.IsNumber), behavior: contiguous}
	if individual {
		s.behavior = isolated
	}
	return s
}

func newPunctuation(c component) (preTokenizer, error) {
	spec := struct {
		Behavior behavior `json:"behavior"`
	}{isolated}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	return &split{pattern: runeClass(isPunctuation), behavior: spec.Behavior}, nil
}

func newDelimiterSplit(c component) (preTokenizer, error) {
	var spec struct {
		Delimiter string `json:"delimiter"`
	}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	if spec.Delimiter == "" {
		return nil, c.fail(errors.New("its delimiter is empty"))
	}
	return &split{pattern: literal(spec.Delimiter), behavior: removed}, nil
}

// bertPreTokenizer drops white space and isolates punctuation.
var bertPreTokenizer = pair{
	&split{pattern: runeClass(unicode.IsSpace), behavior: removed},
	&split{pattern: runeClass(isPunctuation), behavior: isolated},
}

// pair runs two pre-tokenizers as one.
type pair [2]preTokenizer

func (p pair) apply(dst []piece, in piece) ([]piece, error) {
	pieces, err := preTokenizers(p[:]).apply(in)
	return append(dst, pieces...), err
}
