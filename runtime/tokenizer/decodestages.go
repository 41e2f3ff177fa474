package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// spaced is what happens without a decoder: spaces between the tokens.
type spaced struct{ started bool }

func (s *spaced) add(token string, next func(string)) {
	if s.started {
		token = " " + token
	}
	s.started = true
	next(token)
}

func (s *spaced) end(func(string)) {}

// byteLevelStage reads tokens in the byte-level alphabet.
type byteLevelStage struct{ held []byte } // the beginning of a character

func (s *byteLevelStage) add(token string, next func(string)) {
	s.held = byteLevelBytes(s.held, token)
	whole := completeUTF8(s.held)
	if whole > 0 {
		next(replaceInvalid(s.held[:whole]))
		s.held = append(s.held[:0], s.held[whole:]...)
	}
}

func (s *byteLevelStage) end(next func(string)) {
	if len(s.held) > 0 {
		next(replaceInvalid(s.held))
	}
	s.held = nil
}

// completeUTF8 returns how many bytes of b do not depend on what follows: all
// but the beginning of a character at the end.
func completeUTF8(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return len(b)
			}
			return len(b) - n
		}
	}
	return len(b)
}

// replaceInvalid puts U+FFFD in place of every longest stretch of bytes that
// begins like a character but is none.
func replaceInvalid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			for size < len(b) && !utf8.FullRune(b[:size+1]) {
				size++
			}
			out.WriteRune(utf8.RuneError)
		} else {
			out.Write(b[:size])
		}
		b = b[size:]
	}
	return out.String()
}

// byteFallbackStage joins runs of <0xNN> tokens to characters. A run that is
// not UTF-8 as a whole gives one U+FFFD for each byte, so a run has to be
// complete before it can be shown.
type byteFallbackStage struct{ run []byte }

func (s *byteFallbackStage) add(token string, next func(string)) {
	if b, ok := byteToken(token); ok {
		s.run = append(s.run, b)
		return
	}
	s.end(next)
	next(token)
}

func (s *byteFallbackStage) end(next func(string)) {
	switch {
	case len(s.run) == 0:
		return
	case utf8.Valid(s.run):
		next(string(s.run))
	default:
		for range s.run {
			next(string(utf8.RuneError))
		}
	}
	s.run = s.run[:0]
}

// byteToken reads a token of the form <0xNN>.
func byteToken(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(v), err == nil
}

// stripStart removes a character from the front of the whole text.
type stripStart struct {
	content string
	left    int // how often it may still be removed
}

func (s *stripStart) add(chunk string, next func(string)) {
	for s.left > 0 && chunk != "" {
		rest, ok := strings.CutPrefix(chunk, s.content)
		if !ok {
			s.left = 0
			break
		}
		chunk = rest
		s.left--
	}
	next(chunk)
}

func (s *stripStart) end(func(string)) {}

// atEnd collects everything and runs its stage on it as one token.
type atEnd struct {
	stage decodeStage
	text  strings.Builder
}

func (s *atEnd) add(chunk string, _ func(string)) { s.text.WriteString(chunk) }

func (s *atEnd) end(next func(string)) {
	s.stage.add(s.text.String(), next)
	s.stage.end(next)
}

// metaspaceStage writes spaces again; the ones in the first token were added
// by the pre-tokenizer.
type metaspaceStage struct {
	spec    metaspaceSpec
	started bool
}

func (s *metaspaceStage) add(token string, next func(string)) {
	space := " "
	if !s.started && s.spec.Prepend != prependNever {
		space = ""
	}
	s.started = true
	next(strings.ReplaceAll(token, s.spec.Replacement, space))
}

func (s *metaspaceStage) end(func(string)) {}

// wordPieceStage puts spaces between words.
type wordPieceStage struct {
	prefix  string
	cleanup bool
	started bool
}

// cleanups undoes spaces that English does not have.
var cleanups = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"},
	{" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"},
	{" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

func (s *wordPieceStage) add(token string, next func(string)) {
	if s.started {
		if rest, ok := strings.CutPrefix(token, s.prefix); ok {
			token = rest
		} else {
			token = " " + token
		}
	}
	s.started = true
	if s.cleanup {
		for _, c := range cleanups {
			token = strings.ReplaceAll(token, c[0], c[1])
		}
	}
	next(token)
}

func (s *wordPieceStage) end(func(string)) {}

// suffixStage turns end-of-word marks into spaces, except in the last token,
// so it runs one token late.
type suffixStage struct {
	suffix string
	held   string
	holds  bool
}

func (s *suffixStage) add(token string, next func(string)) {
	if s.holds {
		next(strings.ReplaceAll(s.held, s.suffix, " "))
	}
	s.held, s.holds = token, true
}

func (s *suffixStage) end(next func(string)) {
	if s.holds {
		next(strings.ReplaceAll(s.held, s.suffix, ""))
	}
	s.holds = false
}
