package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// scanner reads JSON from left to right without building a tree. The two huge
// lists of a tokenizer.json (vocabulary and merges) go through it; everything
// small is cut out with skip and left to encoding/json.
type scanner struct {
	src string
	pos int
}

// left is how many bytes follow: a measure of how long a list may be.
func (s *scanner) left() int { return len(s.src) - s.pos }

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", s.pos, fmt.Sprintf(format, args...))
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(want byte) error {
	if got := s.peek(); got != want {
		if got == 0 {
			return s.errorf("expected %q but the text ends here", want)
		}
		return s.errorf("expected %q, found %q", want, got)
	}
	s.pos++
	return nil
}

// object calls field for every key; field must consume the value.
func (s *scanner) object(field func(key string) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	return s.list('}', func() error {
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return field(key)
	})
}

// array calls element for every element; element must consume it.
func (s *scanner) array(element func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	return s.list(']', element)
}

func (s *scanner) list(end byte, item func() error) error {
	if s.peek() == end {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case end:
			s.pos++
			return nil
		default:
			return s.expect(end)
		}
	}
}

// str reads a string. The result shares memory with the source unless the
// string holds escapes.
func (s *scanner) str() (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	start := s.pos
	escaped := false
	for i := start; i < len(s.src); i++ {
		switch c := s.src[i]; {
		case c == '\\':
			escaped = true
			i++
		case c == '"':
			s.pos = i + 1
			if escaped {
				return s.unescape(s.src[start-1 : i+1])
			}
			return s.src[start:i], nil
		case c < ' ':
			return "", s.errorf("a string holds a raw control character")
		}
	}
	return "", s.errorf("a string has no end")
}

func (s *scanner) unescape(quoted string) (string, error) {
	var out string
	if err := json.Unmarshal([]byte(quoted), &out); err != nil {
		return "", s.errorf("bad string %.40s: %v", quoted, err)
	}
	return out, nil
}

// number returns the text of a number.
func (s *scanner) number() string {
	s.peek()
	start := s.pos
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			s.pos++
		default:
			return s.src[start:s.pos]
		}
	}
	return s.src[start:]
}

func (s *scanner) int32() (int32, error) {
	text := s.number()
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, s.errorf("expected a whole number of at most 31 bits, found %q", text)
	}
	return int32(v), nil
}

func (s *scanner) float() (float64, error) {
	text := s.number()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, s.errorf("expected a number, found %q", text)
	}
	return v, nil
}

// skip passes over one value and returns its text. It only looks for the end
// of the value; whoever uses the text checks it.
func (s *scanner) skip() (string, error) {
	s.peek()
	start := s.pos
	depth := 0
	for {
		switch c := s.peek(); c {
		case 0:
			return "", s.errorf("a value has no end")
		case '"':
			if _, err := s.str(); err != nil {
				return "", err
			}
		case '{', '[':
			depth++
			s.pos++
			continue
		case '}', ']':
			depth--
			s.pos++
		case ',', ':':
			if depth == 0 {
				return "", s.errorf("expected a value, found %q", c)
			}
			s.pos++
			continue
		default:
			s.word()
		}
		if depth == 0 {
			return s.src[start:s.pos], nil
		}
		if depth < 0 {
			return "", s.errorf("a bracket closes nothing")
		}
	}
}

// word passes over a number or a literal.
func (s *scanner) word() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ',', ':', '{', '}', '[', ']', '"', ' ', '\t', '\n', '\r':
			return
		}
		s.pos++
	}
}
