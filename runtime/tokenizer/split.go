package tokenizer

import (
	"encoding/json"
	"fmt"
)

// behavior says what becomes of the matches of a split.
type behavior int

const (
	isolated           behavior = iota // a piece of its own
	removed                            // dropped
	mergedWithPrevious                 // appended to the piece before
	mergedWithNext                     // put in front of the piece after
	contiguous                         // neighbouring matches become one piece
)

var behaviorNames = map[string]behavior{
	"Isolated":           isolated,
	"Removed":            removed,
	"MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext":     mergedWithNext,
	"Contiguous":         contiguous,
}

// UnmarshalJSON reads the name of a behavior.
func (b *behavior) UnmarshalJSON(data []byte) error {
	var name string
	if err := json.Unmarshal(data, &name); err != nil {
		return err
	}
	value, ok := behaviorNames[name]
	if !ok {
		return fmt.Errorf("unknown behavior %q", name)
	}
	*b = value
	return nil
}

// split cuts pieces at the matches of a pattern.
type split struct {
	pattern  pattern
	behavior behavior
	invert   bool // matches and gaps change places
}

func newSplit(c component) (*split, error) {
	var spec struct {
		Pattern  patternSpec `json:"pattern"`
		Behavior behavior    `json:"behavior"`
		Invert   bool        `json:"invert"`
	}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	p, err := spec.Pattern.compile()
	if err != nil {
		return nil, c.fail(err)
	}
	return &split{pattern: p, behavior: spec.Behavior, invert: spec.Invert}, nil
}

// mustSplit isolates the matches of an expression written in this package.
func mustSplit(expression string) *split {
	re, err := newRegex(expression)
	if err != nil {
		panic(err) // a mistake in this package, found by every test
	}
	return &split{pattern: re, behavior: isolated}
}

// span is a match of the pattern or a gap between two matches.
type span struct {
	start, end int
	match      bool
}

func (s *split) apply(dst []piece, p piece) ([]piece, error) {
	emit := func(start, end int) {
		if start < end {
			dst = append(dst, piece{text: p.text[start:end], first: p.first && start == 0})
		}
	}
	if s.behavior == isolated || s.behavior == removed && !s.invert {
		// The common cases need no list of spans.
		pos := 0
		err := s.pattern.each(p.text, func(start, end int) {
			emit(pos, start)
			if s.behavior == isolated {
				emit(start, end)
			}
			pos = end
		})
		emit(pos, len(p.text))
		return dst, err
	}
	spans, err := s.spans(p.text)
	if err != nil {
		return nil, err
	}
	for _, x := range s.arrange(spans) {
		emit(x.start, x.end)
	}
	return dst, nil
}

// spans lists matches and gaps.
func (s *split) spans(text string) ([]span, error) {
	var out []span
	pos := 0
	err := s.pattern.each(text, func(start, end int) {
		if start > pos {
			out = append(out, span{pos, start, s.invert})
		}
		out = append(out, span{start, end, !s.invert})
		pos = end
	})
	if pos < len(text) {
		out = append(out, span{pos, len(text), s.invert})
	}
	return out, err
}

// arrange applies a behavior other than isolated.
func (s *split) arrange(spans []span) []span {
	var out []span
	switch s.behavior {
	case removed:
		for _, x := range spans {
			if !x.match {
				out = append(out, x)
			}
		}
	case contiguous:
		for i, x := range spans {
			if i > 0 && x.match == spans[i-1].match {
				out[len(out)-1].end = x.end
			} else {
				out = append(out, x)
			}
		}
	case mergedWithPrevious:
		// Only the first of several matches in a row joins its neighbour.
		for i, x := range spans {
			if i > 0 && x.match && !spans[i-1].match {
				out[len(out)-1].end = x.end
			} else {
				out = append(out, x)
			}
		}
	case mergedWithNext:
		// Only the last of several matches in a row joins its neighbour.
		for i, x := range spans {
			if i > 0 && !x.match && spans[i-1].match {
				out[len(out)-1].end = x.end
			} else {
				out = append(out, x)
			}
		}
	}
	return out
}
