package tokenizer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// pattern finds all places of something in a text, from left to right and
// without overlap. found gets byte offsets.
type pattern interface {
	each(text string, found func(start, end int)) error
}

// literal finds a fixed, non-empty string.
type literal string

func (l literal) each(text string, found func(start, end int)) error {
	for pos := 0; ; {
		i := strings.Index(text[pos:], string(l))
		if i < 0 {
			return nil
		}
		found(pos+i, pos+i+len(l))
		pos += i + len(l)
	}
}

// runeClass finds single characters for which it is true.
type runeClass func(rune) bool

func (class runeClass) each(text string, found func(start, end int)) error {
	for i, r := range text {
		if class(r) {
			found(i, i+utf8.RuneLen(r))
		}
	}
	return nil
}

// runeRuns finds the longest runs of characters of one class, trying the
// classes in order.
type runeRuns []func(rune) bool

func (classes runeRuns) each(text string, found func(start, end int)) error {
	for pos := 0; pos < len(text); {
		first, size := utf8.DecodeRuneInString(text[pos:])
		end := pos + size
		for _, class := range classes {
			if !class(first) {
				continue
			}
			for end < len(text) {
				r, size := utf8.DecodeRuneInString(text[end:])
				if !class(r) {
					break
				}
				end += size
			}
			found(pos, end)
			break
		}
		pos = end
	}
	return nil
}

// matchTimeout ends the search for one match of a regular expression. The
// patterns come with the model and may be hostile; a sane one takes
// microseconds.
const matchTimeout = 2 * time.Second

// regex finds the matches of a regular expression with look-ahead, which Go's
// own package does not have.
type regex struct {
	re *regexp2.Regexp
}

func newRegex(expression string) (regex, error) {
	re, err := regexp2.Compile(expression)
	if err != nil {
		return regex{}, fmt.Errorf("cannot read the regular expression %q: %w", expression, err)
	}
	re.MatchTimeout = matchTimeout
	return regex{re}, nil
}

func (r regex) each(text string, found func(start, end int)) error {
	// The engine works on runes; walk the byte offset along.
	runes := []rune(text)
	runePos, bytePos := 0, 0
	advance := func(to int) int {
		for ; runePos < to; runePos++ {
			bytePos += utf8.RuneLen(runes[runePos])
		}
		return bytePos
	}
	err := r.re.FindRunesMatches(runes, -1, func(m regexp2.MatchView) bool {
		start, length, _ := m.GroupRange(0)
		from := advance(start)
		found(from, advance(start+length))
		return true
	})
	if err != nil {
		return fmt.Errorf("searching for %q: %w", r.re.String(), err)
	}
	return nil
}
