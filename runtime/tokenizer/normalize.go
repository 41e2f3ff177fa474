package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites the text before it is cut.
type normalizer interface {
	normalize(text string) (string, error)
}

// normalizers run one after the other.
type normalizers []normalizer

func (list normalizers) normalize(text string) (string, error) {
	var err error
	for _, n := range list {
		if text, err = n.normalize(text); err != nil {
			return "", err
		}
	}
	return text, nil
}

// pure is a normalizer that cannot fail.
type pure func(string) string

func (f pure) normalize(text string) (string, error) { return f(text), nil }

func parseNormalizers(raw json.RawMessage) (normalizers, error) {
	list, err := components(raw, "normalizer", "normalizers")
	if err != nil {
		return nil, err
	}
	var out normalizers
	for _, c := range list {
		n, err := parseNormalizer(c)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func parseNormalizer(c component) (normalizer, error) {
	switch c.kind {
	case "NFC":
		return unicodeForm(norm.NFC), nil
	case "NFD":
		return unicodeForm(norm.NFD), nil
	case "NFKC":
		return unicodeForm(norm.NFKC), nil
	case "NFKD":
		return unicodeForm(norm.NFKD), nil
	case "Lowercase":
		return pure(lowercase), nil
	case "StripAccents":
		return pure(func(text string) string { return without(text, unicode.M) }), nil
	case "ByteLevel":
		return pure(func(text string) string { return string(appendByteLevel(nil, text)) }), nil
	case "Strip":
		return newStripSpace(c)
	case "Prepend":
		return newPrepend(c)
	case "Replace":
		return newReplace(c)
	case "BertNormalizer":
		return newBertNormalizer(c)
	}
	return nil, c.fail(errUnsupported)
}

// lowercase maps every character on its own, without regard to its
// neighbours. One character becomes two that way.
func lowercase(text string) string {
	text = strings.ReplaceAll(text, "İ", "i\u0307")
	return strings.Map(unicode.ToLower, text)
}

// without drops the characters of a Unicode class.
func without(text string, class *unicode.RangeTable) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(class, r) {
			return -1
		}
		return r
	}, text)
}

func newStripSpace(c component) (normalizer, error) {
	spec := struct {
		Left  bool `json:"strip_left"`
		Right bool `json:"strip_right"`
	}{true, true}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	return pure(func(text string) string {
		if spec.Left {
			text = strings.TrimLeftFunc(text, unicode.IsSpace)
		}
		if spec.Right {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		}
		return text
	}), nil
}

func newPrepend(c component) (normalizer, error) {
	var spec struct {
		Prepend string `json:"prepend"`
	}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	return prepend(spec.Prepend), nil
}

// prepend puts a prefix before any text that is not empty.
func prepend(prefix string) normalizer {
	return pure(func(text string) string {
		if text == "" {
			return ""
		}
		return prefix + text
	})
}

// replace is the Replace normalizer and decoder.
type replace struct {
	pattern pattern
	content string
}

func newReplace(c component) (replace, error) {
	var spec struct {
		Pattern patternSpec `json:"pattern"`
		Content string      `json:"content"`
	}
	if err := c.decode(&spec); err != nil {
		return replace{}, err
	}
	p, err := spec.Pattern.compile()
	if err != nil {
		return replace{}, c.fail(err)
	}
	return replace{p, spec.Content}, nil
}

func (r replace) normalize(text string) (string, error) {
	if l, ok := r.pattern.(literal); ok {
		return strings.ReplaceAll(text, string(l), r.content), nil
	}
	var out strings.Builder
	pos := 0
	err := r.pattern.each(text, func(start, end int) {
		out.WriteString(text[pos:start])
		out.WriteString(r.content)
		pos = end
	})
	out.WriteString(text[pos:])
	return out.String(), err
}
