package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func unicodeForm(form norm.Form) normalizer {
	return pure(func(text string) string { return normalizeTo(form, text) })
}

// graphemeJoiner is what x/text puts into long runs of combining marks.
const graphemeJoiner = "\u034F"

// normalizeTo brings text into a Unicode normal form. x/text produces the
// "stream-safe" variant, which breaks runs of more than 30 combining marks
// with U+034F; the tokenizers were trained without it, so such texts take a
// slower way.
func normalizeTo(form norm.Form, text string) string {
	out := form.String(text)
	if strings.Count(out, graphemeJoiner) == strings.Count(text, graphemeJoiner) {
		return out
	}
	return normalizePlain(form, text)
}

// normalizePlain is the textbook algorithm: decompose every character, sort
// the marks behind each base character by class, compose again.
func normalizePlain(form norm.Form, text string) string {
	decomposed := norm.NFD
	if form == norm.NFKD || form == norm.NFKC {
		decomposed = norm.NFKD
	}
	var marked []markedRune
	for _, r := range text {
		for _, part := range decomposed.String(string(r)) {
			marked = append(marked, markedRune{part, combiningClass(part)})
		}
	}
	sortMarks(marked)
	if form == norm.NFC || form == norm.NFKC {
		marked = compose(marked)
	}
	var out strings.Builder
	for _, m := range marked {
		out.WriteRune(m.r)
	}
	return out.String()
}

// markedRune is a character with its canonical combining class, 0 for a base
// character.
type markedRune struct {
	r     rune
	class uint8
}

func combiningClass(r rune) uint8 {
	var buf [utf8.UTFMax]byte
	n := utf8.EncodeRune(buf[:], r)
	return norm.NFD.Properties(buf[:n]).CCC()
}

// sortMarks orders each run of combining marks by class.
func sortMarks(text []markedRune) {
	for start := 0; start < len(text); start++ {
		end := start
		for end < len(text) && text[end].class != 0 {
			end++
		}
		slices.SortStableFunc(text[start:end], func(a, b markedRune) int {
			return int(a.class) - int(b.class)
		})
		start = end
	}
}

// compose joins base characters with the marks after them where Unicode has
// one character for both. It reuses text.
func compose(text []markedRune) []markedRune {
	out := text[:0]
	base := -1 // index in out of the last base character
	for _, m := range text {
		if base >= 0 && !blocked(out[base+1:], m.class) {
			if joined, ok := composePair(out[base].r, m.r); ok {
				out[base].r = joined
				continue
			}
		}
		if m.class == 0 {
			base = len(out)
		}
		out = append(out, m)
	}
	return out
}

// blocked tells whether what stands between a base character and a mark of
// the given class keeps them from being joined.
func blocked(between []markedRune, class uint8) bool {
	return len(between) > 0 && between[len(between)-1].class >= class
}

func composePair(a, b rune) (rune, bool) {
	joined := norm.NFC.String(string([]rune{a, b}))
	r, size := utf8.DecodeRuneInString(joined)
	return r, size == len(joined)
}
