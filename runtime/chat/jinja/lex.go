package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEnd tokenKind = iota // the tag's closer
	tokenName
	tokenString // text holds the value, escapes undone
	tokenInt
	tokenFloat
	tokenOperator
)

type token struct {
	kind tokenKind
	text string
	line int
}

func (t token) String() string {
	switch t.kind {
	case tokenEnd:
		return "the end of the tag"
	case tokenString:
		return "the string " + strconv.Quote(t.text)
	}
	return strconv.Quote(t.text)
}

// maxTokens bounds one tag, and with it how deep its expression tree can be.
const maxTokens = 20_000

// lexer reads the inside of one tag.
type lexer struct {
	src    string
	pos    int
	line   int
	closer string // "}}" or "%}"
	open   []byte // closers of the brackets that are open
	out    []token
}

// tokens reads up to the tag's closer, leaves pos behind it, and returns the
// white space marker ('-', '+' or 0) before the closer.
func (l *lexer) tokens() ([]token, byte) {
	first := l.line
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		if c == '\n' {
			l.line++
		}
		if r, n := utf8.DecodeRuneInString(l.src[l.pos:]); isSpace(r) {
			l.pos += n
			continue
		}
		if marker, ok := l.atCloser(c); ok {
			l.add(tokenEnd, "")
			return l.out, marker
		}
		switch {
		case c == '"' || c == '\'':
			l.quoted(c)
		case c >= '0' && c <= '9':
			l.number()
		default:
			if !l.name() {
				l.operator()
			}
		}
		if len(l.out) > maxTokens {
			l.fail("tag is longer than %d tokens", maxTokens)
		}
	}
	panic(&SyntaxError{Line: first, Message: fmt.Sprintf("tag is not closed by %q", l.closer)})
}

func (l *lexer) atCloser(c byte) (marker byte, ok bool) {
	if len(l.open) > 0 {
		return 0, false // a dict literal may end in }}
	}
	rest := l.src[l.pos:]
	if strings.HasPrefix(rest, l.closer) {
		l.pos += 2
		return 0, true
	}
	if (c == '-' || c == '+' && l.closer == "%}") && strings.HasPrefix(rest[1:], l.closer) {
		l.pos += 3
		return c, true
	}
	return 0, false
}

func (l *lexer) add(kind tokenKind, text string) {
	l.out = append(l.out, token{kind, text, l.line})
}

func (l *lexer) fail(format string, a ...any) {
	panic(&SyntaxError{Line: l.line, Message: fmt.Sprintf(format, a...)})
}

func (l *lexer) name() bool {
	end := l.pos
	for end < len(l.src) {
		r, n := utf8.DecodeRuneInString(l.src[end:])
		if r != '_' && !unicode.IsLetter(r) && (end == l.pos || !unicode.IsDigit(r) && !unicode.IsMark(r)) {
			break
		}
		end += n
	}
	if end == l.pos {
		return false
	}
	l.add(tokenName, l.src[l.pos:end])
	l.pos = end
	return true
}

func (l *lexer) operator() {
	rest := l.src[l.pos:]
	for _, op := range []string{"//", "**", "==", "!=", ">=", "<="} {
		if strings.HasPrefix(rest, op) {
			l.add(tokenOperator, op)
			l.pos += 2
			return
		}
	}
	c := rest[0]
	switch c {
	case '(':
		l.open = append(l.open, ')')
	case '[':
		l.open = append(l.open, ']')
	case '{':
		l.open = append(l.open, '}')
	case ')', ']', '}':
		n := len(l.open)
		if n == 0 || l.open[n-1] != c {
			l.fail("%q closes no bracket", c)
		}
		l.open = l.open[:n-1]
	case '+', '-', '*', '/', '%', '~', '<', '>', '=', '.', ',', ':', '|':
	default:
		r, _ := utf8.DecodeRuneInString(rest)
		l.fail("unexpected character %q", r)
	}
	l.add(tokenOperator, string(c))
	l.pos++
}

// number reads an int or a float. Python's forms count: 1_000, 0x1f, 1e3, but
// not 007. After a dot (x.0.1) a number is an index and never a float.
func (l *lexer) number() {
	start, kind := l.pos, tokenInt
	rest := l.src[start:]
	if len(rest) > 1 && rest[0] == '0' && strings.IndexByte("xXoObB", rest[1]) >= 0 {
		l.pos += 2
		l.skip(func(c byte) bool { return c == '_' || isHex(c) })
	} else {
		l.digits()
		afterDot := start > 0 && l.src[start-1] == '.'
		if !afterDot && l.fraction() {
			kind = tokenFloat
		}
	}
	text := strings.ReplaceAll(l.src[start:l.pos], "_", "")
	if kind == tokenInt && len(text) > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9' && strings.Trim(text, "0") != "" {
		l.fail("number %s begins with 0", text)
	}
	l.add(kind, text)
}

func (l *lexer) fraction() bool {
	found := false
	if l.byteAt(0) == '.' && isDigit(l.byteAt(1)) {
		found = true
		l.pos++
		l.digits()
	}
	if c := l.byteAt(0); c == 'e' || c == 'E' {
		n := 1
		if c := l.byteAt(1); c == '+' || c == '-' {
			n = 2
		}
		if isDigit(l.byteAt(n)) {
			found = true
			l.pos += n
			l.digits()
		}
	}
	return found
}

func (l *lexer) byteAt(i int) byte {
	if l.pos+i < len(l.src) {
		return l.src[l.pos+i]
	}
	return 0
}

func (l *lexer) digits() { l.skip(func(c byte) bool { return c == '_' || isDigit(c) }) }

func (l *lexer) skip(while func(byte) bool) {
	for l.pos < len(l.src) && while(l.src[l.pos]) {
		l.pos++
	}
}

// quoted reads a string literal with Python's escapes.
func (l *lexer) quoted(quote byte) {
	var b strings.Builder
	i := l.pos + 1
	newlines := 0
	for ; i < len(l.src) && l.src[i] != quote; i++ {
		c := l.src[i]
		if c == '\n' {
			newlines++
		}
		if c != '\\' || i+1 >= len(l.src) {
			b.WriteByte(c)
			continue
		}
		i++
		if l.src[i] == '\n' {
			newlines++
		}
		i += l.escape(&b, l.src[i:]) - 1
	}
	if i >= len(l.src) {
		l.fail("string is not closed")
	}
	l.add(tokenString, b.String())
	l.line += newlines
	l.pos = i + 1
}

var simpleEscapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f", 'v': "\v", 'a': "\a",
	'\\': "\\", '\'': "'", '"': "\"", '\n': "",
}

// escape writes what follows a backslash and returns how many bytes it took.
func (l *lexer) escape(b *strings.Builder, s string) int {
	c := s[0]
	if text, ok := simpleEscapes[c]; ok {
		b.WriteString(text)
		return 1
	}
	base, from, n := 16, 1, 0
	switch c {
	case 'x':
		n = 2
	case 'u':
		n = 4
	case 'U':
		n = 8
	case '0', '1', '2', '3', '4', '5', '6', '7':
		base, from = 8, 0
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
	default: // an unknown escape stays as it is written
		b.WriteByte('\\')
		b.WriteByte(c)
		return 1
	}
	if from+n > len(s) {
		l.fail("escape \\%c is cut short", c)
	}
	v, err := strconv.ParseUint(s[from:from+n], base, 32)
	if err != nil || v > unicode.MaxRune {
		l.fail("bad escape \\%s in a string", s[:from+n])
	}
	b.WriteRune(rune(v))
	return from + n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isHex(c byte) bool   { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
