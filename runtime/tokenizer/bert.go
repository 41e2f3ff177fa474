package tokenizer

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// bertNormalizer is the clean-up that BERT's tokenizers begin with.
type bertNormalizer struct {
	cleanText    bool
	ideographs   bool
	stripAccents bool
	lowercase    bool
}

func newBertNormalizer(c component) (*bertNormalizer, error) {
	spec := struct {
		CleanText    bool  `json:"clean_text"`
		Ideographs   bool  `json:"handle_chinese_chars"`
		StripAccents *bool `json:"strip_accents"`
		Lowercase    bool  `json:"lowercase"`
	}{CleanText: true, Ideographs: true, Lowercase: true}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	b := &bertNormalizer{
		cleanText:    spec.CleanText,
		ideographs:   spec.Ideographs,
		stripAccents: spec.Lowercase,
		lowercase:    spec.Lowercase,
	}
	if spec.StripAccents != nil {
		b.stripAccents = *spec.StripAccents
	}
	return b, nil
}

func (b *bertNormalizer) normalize(text string) (string, error) {
	if b.cleanText {
		text = strings.Map(cleanRune, text)
	}
	if b.ideographs {
		text = spaceIdeographs(text)
	}
	if b.stripAccents {
		text = without(normalizeTo(norm.NFD, text), unicode.Mn)
	}
	if b.lowercase {
		text = lowercase(text)
	}
	return text, nil
}

// cleanRune turns all white space into spaces and drops control characters.
// Characters that Unicode has not assigned stay.
func cleanRune(r rune) rune {
	switch {
	case r == 0, r == unicode.ReplacementChar:
		return -1
	case unicode.IsSpace(r):
		return ' '
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
		return -1
	}
	return r
}

func spaceIdeographs(text string) string {
	var out strings.Builder
	for _, r := range text {
		if isIdeograph(r) {
			out.WriteByte(' ')
			out.WriteRune(r)
			out.WriteByte(' ')
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}
