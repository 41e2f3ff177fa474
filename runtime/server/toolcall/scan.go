package toolcall

// scanner finds the end of a JSON object or array in text that comes in pieces, looking at each byte once.
type scanner struct {
	depth   int
	quoted  bool // within a string
	escaped bool // behind a backslash
}

// scan reads on and returns how many bytes of text belong to the value, and whether that is its end. The text of the
// first call begins with the value's bracket.
func (s *scanner) scan(text string) (n int, ended bool) {
	for i := range len(text) {
		c := text[i]
		switch {
		case s.escaped:
			s.escaped = false
		case s.quoted:
			s.escaped = c == '\\'
			s.quoted = c != '"'
		case c == '"':
			s.quoted = true
		case c == '{', c == '[':
			s.depth++
		case c == '}', c == ']':
			if s.depth--; s.depth == 0 {
				return i + 1, true
			}
		}
	}
	return len(text), false
}
