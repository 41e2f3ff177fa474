package chat

import (
	"strings"
	"unicode"
)

// Markers enclose a model's reasoning in its text.
type Markers struct{ Open, Close string }

// ThinkMarkers are what most models use.
var ThinkMarkers = Markers{"<think>", "</think>"}

// knownMarkers are those of models that are widely used.
var knownMarkers = []Markers{
	ThinkMarkers,
	{"<thinking>", "</thinking>"},
	{"<reasoning>", "</reasoning>"},
	{"<seed:think>", "</seed:think>"},
	{"[THINK]", "[/THINK]"},
	{"<|START_THINKING|>", "<|END_THINKING|>"},
	{"<|begin_of_thought|>", "<|end_of_thought|>"},
}

// Reasoning returns the markers that the template names around reasoning, and
// whether it names any.
func (t *Template) Reasoning() (Markers, bool) {
	for _, m := range knownMarkers {
		if strings.Contains(t.source, m.Open) || strings.Contains(t.source, m.Close) {
			return m, true
		}
	}
	return Markers{}, false
}

// Splitter takes a model's text, as it streams in, apart into reasoning and
// content. Reasoning stands at the start of the text, between the markers;
// anything that looks like a marker later is content. The white space next to
// the markers belongs to neither.
//
// However the text is cut into pieces, the results put together are the same.
type Splitter struct {
	markers Markers
	state   splitState
	held    string // text that may turn out to be part of a marker, or white space before one
	begun   bool   // some reasoning was returned
}

type splitState uint8

const (
	splitStart   splitState = iota // nothing but white space and a part of the opening marker yet
	splitThought                   // within the reasoning
	splitGap                       // white space between reasoning and content
	splitContent
)

// NewSplitter returns a splitter for the text that follows a prompt. If the
// prompt ends with the opening marker, as some templates make it, the text
// begins within the reasoning. With empty markers all is content.
func NewSplitter(m Markers, prompt string) *Splitter {
	s := &Splitter{markers: m}
	switch {
	case m.Open == "" || m.Close == "":
		s.state = splitContent
	case strings.HasSuffix(strings.TrimRightFunc(prompt, unicode.IsSpace), m.Open):
		s.state = splitThought
	}
	return s
}

// Push takes the next piece of text and returns what is certain by now.
func (s *Splitter) Push(piece string) (reasoning, content string) {
	text := s.held + piece
	s.held = ""
	if s.state == splitStart {
		text = s.start(text)
	}
	if s.state == splitThought {
		reasoning, text = s.thought(text)
	}
	if s.state == splitGap {
		if text = strings.TrimLeftFunc(text, unicode.IsSpace); text != "" {
			s.state = splitContent
		}
	}
	return reasoning, text
}

// start looks for the opening marker and returns what follows it, or the whole
// text if it has none.
func (s *Splitter) start(text string) string {
	trimmed := strings.TrimLeftFunc(text, unicode.IsSpace)
	if rest, ok := strings.CutPrefix(trimmed, s.markers.Open); ok {
		s.state = splitThought
		return rest
	}
	if strings.HasPrefix(s.markers.Open, trimmed) {
		s.held = text
		return ""
	}
	s.state = splitContent
	return text
}

// thought returns reasoning, up to the closing marker if that has come, and
// what follows the marker.
func (s *Splitter) thought(text string) (reasoning, rest string) {
	if !s.begun {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
	}
	reasoning, rest, closed := strings.Cut(text, s.markers.Close)
	if closed {
		s.state = splitGap
		return strings.TrimRightFunc(reasoning, unicode.IsSpace), rest
	}
	n := len(text) - partialSuffix(text, s.markers.Close)
	n = len(strings.TrimRightFunc(text[:n], unicode.IsSpace))
	s.begun = s.begun || n > 0
	s.held = text[n:]
	return text[:n], ""
}

// Flush returns what was held back, at the end of the text.
func (s *Splitter) Flush() (reasoning, content string) {
	held := s.held
	s.held = ""
	if s.state == splitThought {
		return strings.TrimRightFunc(held, unicode.IsSpace), ""
	}
	return "", held
}

// InReasoning tells whether the text so far ends within the reasoning.
func (s *Splitter) InReasoning() bool { return s.state == splitThought }

// partialSuffix returns the length of the longest suffix of text that is the
// start of the marker, but not the whole of it.
func partialSuffix(text, marker string) int {
	for n := min(len(text), len(marker)-1); n > 0; n-- {
		if strings.HasSuffix(text, marker[:n]) {
			return n
		}
	}
	return 0
}
