package jinja

import "strings"

// A template is text with three kinds of tags in it: {{ output }}, {% statement
// %} and {# comment #}. This file cuts it up and settles which white space
// around tags belongs to the text.

type segmentKind uint8

const (
	segmentText segmentKind = iota
	segmentOutput
	segmentTag
)

type segment struct {
	kind   segmentKind
	text   string  // of segmentText
	tokens []token // of the others, closed by one tokenEnd
	line   int
}

type sourceSplitter struct {
	src      string
	pos      int
	line     int // line of src[pos]
	segments []segment
}

// splitSource cuts the source into segments. Its errors are panics with a
// *SyntaxError, which Compile turns into errors.
func splitSource(src string) []segment {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	src = strings.TrimSuffix(src, "\n") // one newline at the end of the file is no part of the text
	s := &sourceSplitter{src: src, line: 1}
	for s.pos < len(s.src) {
		s.next()
	}
	return s.segments
}

// next takes the text up to the next tag, and that tag.
func (s *sourceSplitter) next() {
	start := s.pos
	open := s.findTag(start)
	text := s.src[start:open]
	if open == len(s.src) {
		s.addText(text)
		s.advance(open)
		return
	}
	kind := s.src[open+1]
	body := open + 2
	marker := byte(0)
	if body < len(s.src) && (s.src[body] == '-' || s.src[body] == '+') {
		marker = s.src[body]
		body++
	}
	s.addText(s.trimBefore(text, start, kind, marker))
	s.advance(body)
	switch kind {
	case '#':
		s.comment()
	case '%':
		if end, strip, ok := s.rawTag(body, "raw"); ok {
			s.raw(end, strip)
			return
		}
		s.tag(segmentTag, "%}")
	default:
		s.tag(segmentOutput, "}}")
	}
}

// findTag returns where the next tag opens, or the length of the source.
func (s *sourceSplitter) findTag(from int) int {
	for {
		i := strings.IndexByte(s.src[from:], '{')
		if i < 0 || from+i+1 >= len(s.src) {
			return len(s.src)
		}
		from += i
		if c := s.src[from+1]; c == '{' || c == '%' || c == '#' {
			return from
		}
		from++
	}
}

// trimBefore drops the white space that a tag takes away before itself: all of
// it with "-"; with lstrip_blocks, which is always on, the blanks between the
// start of the line and a statement or comment.
func (s *sourceSplitter) trimBefore(text string, start int, kind, marker byte) string {
	switch {
	case marker == '-':
		return strings.TrimRightFunc(text, isSpace)
	case marker == '+' || kind == '{':
		return text
	}
	lineStart := strings.LastIndexByte(text, '\n') + 1
	startsLine := lineStart > 0 || start == 0 || s.src[start-1] == '\n'
	if startsLine && strings.TrimFunc(text[lineStart:], isSpace) == "" {
		return text[:lineStart]
	}
	return text
}

// closeTag moves behind a tag's end and drops the white space that it takes
// away after itself: all of it with "-"; with trim_blocks, which is always on,
// one newline after a statement or comment.
func (s *sourceSplitter) closeTag(end int, marker byte, trimNewline bool) {
	switch {
	case marker == '-':
		rest := s.src[end:]
		end += len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
	case marker != '+' && trimNewline && strings.HasPrefix(s.src[end:], "\n"):
		end++
	}
	s.advance(end)
}

func (s *sourceSplitter) comment() {
	i := strings.Index(s.src[s.pos:], "#}")
	if i < 0 {
		s.fail("comment is not closed")
	}
	marker := byte(0)
	if i > 0 {
		marker = s.src[s.pos+i-1]
	}
	s.closeTag(s.pos+i+2, marker, true)
}

func (s *sourceSplitter) tag(kind segmentKind, closer string) {
	line := s.line
	lx := &lexer{src: s.src, pos: s.pos, line: s.line, closer: closer}
	tokens, marker := lx.tokens()
	s.segments = append(s.segments, segment{kind: kind, tokens: tokens, line: line})
	s.closeTag(lx.pos, marker, kind == segmentTag)
}

// rawTag tells whether a statement tag whose inside begins at pos is just the
// word, and where it ends.
func (s *sourceSplitter) rawTag(pos int, word string) (end int, marker byte, ok bool) {
	rest := strings.TrimLeftFunc(s.src[pos:], isSpace)
	rest, ok = strings.CutPrefix(rest, word)
	if !ok {
		return 0, 0, false
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		marker, rest = rest[0], rest[1:]
	}
	rest, ok = strings.CutPrefix(rest, "%}")
	return len(s.src) - len(rest), marker, ok
}

// raw takes everything up to {% endraw %} as text.
func (s *sourceSplitter) raw(begin int, marker byte) {
	s.closeTag(begin, marker, false)
	start := s.pos
	for at := start; ; at += 2 {
		i := strings.Index(s.src[at:], "{%")
		if i < 0 {
			s.fail("raw is not closed by endraw")
		}
		at += i
		body := at + 2
		before := byte(0)
		if body < len(s.src) && (s.src[body] == '-' || s.src[body] == '+') {
			before = s.src[body]
			body++
		}
		end, after, ok := s.rawTag(body, "endraw")
		if !ok {
			continue
		}
		s.addText(s.trimBefore(s.src[start:at], start, '%', before))
		s.closeTag(end, after, true)
		return
	}
}

func (s *sourceSplitter) addText(text string) {
	if text != "" {
		s.segments = append(s.segments, segment{kind: segmentText, text: text, line: s.line})
	}
}

func (s *sourceSplitter) advance(to int) {
	s.line += strings.Count(s.src[s.pos:to], "\n")
	s.pos = to
}

func (s *sourceSplitter) fail(message string) {
	panic(&SyntaxError{Line: s.line, Message: message})
}
