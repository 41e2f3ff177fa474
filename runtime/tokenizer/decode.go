package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// decodeStage turns the texts of tokens back into plain text. It is fed token
// by token and may keep text back until it knows what comes next; end makes it
// give up what it kept. A stage serves one text.
type decodeStage interface {
	add(token string, next func(string))
	end(next func(string))
}

// stageMaker starts a decodeStage for a new text.
type stageMaker func() decodeStage

// mapStage is a stage that treats every token alike.
type mapStage func(string) string

func (f mapStage) add(token string, next func(string)) { next(f(token)) }
func (f mapStage) end(func(string))                    {}

// stateless makes the same stage for every text.
func stateless(f func(string) string) stageMaker {
	return func() decodeStage { return mapStage(f) }
}

// parseDecoder returns the stages of the decoder.
func parseDecoder(raw json.RawMessage) ([]stageMaker, error) {
	list, err := components(raw, "decoder", "decoders")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return []stageMaker{func() decodeStage { return &spaced{} }}, nil
	}
	var out []stageMaker
	for i, c := range list {
		stage, err := parseDecodeStage(c)
		if err != nil {
			return nil, err
		}
		out = append(out, stage)
		if c.kind == "Fuse" || c.kind == "ByteLevel" {
			rest, err := parseFusedDecoder(list[i+1:])
			return append(out, rest...), err
		}
	}
	return out, nil
}

// parseFusedDecoder makes the stages after everything became one token. They
// see that token in chunks, so a stage must be able to work so, or waits for
// the end of the text.
func parseFusedDecoder(list []component) ([]stageMaker, error) {
	var out []stageMaker
	for _, c := range list {
		if c.kind == "Fuse" {
			continue // already one token
		}
		if c.kind == "Strip" {
			spec, err := parseStrip(c)
			if err != nil {
				return nil, err
			}
			if spec.Stop == 0 && utf8.RuneCountInString(spec.Content) == 1 {
				out = append(out, func() decodeStage { return &stripStart{spec.Content, spec.Start} })
				continue
			}
		}
		stage, err := parseDecodeStage(c)
		if err != nil {
			return nil, err
		}
		out = append(out, func() decodeStage { return &atEnd{stage: stage()} })
	}
	return out, nil
}

func parseDecodeStage(c component) (stageMaker, error) {
	switch c.kind {
	case "ByteLevel":
		return func() decodeStage { return &byteLevelStage{} }, nil
	case "ByteFallback":
		return func() decodeStage { return &byteFallbackStage{} }, nil
	case "Fuse":
		return stateless(func(token string) string { return token }), nil
	case "Replace":
		r, err := newReplace(c)
		return stateless(func(token string) string {
			if out, err := r.normalize(token); err == nil {
				return out
			}
			return token // the search took too long
		}), err
	case "Strip":
		spec, err := parseStrip(c)
		return stateless(spec.strip), err
	case "Metaspace":
		spec, err := parseMetaspace(c)
		return func() decodeStage { return &metaspaceStage{spec: spec} }, err
	case "WordPiece":
		return newWordPieceStage(c)
	case "BPEDecoder":
		return newSuffixStage(c)
	}
	return nil, c.fail(errUnsupported)
}

// stripSpec removes up to Start copies of Content from the front and up to
// Stop from the back.
type stripSpec struct {
	Content string `json:"content"`
	Start   int    `json:"start"`
	Stop    int    `json:"stop"`
}

func parseStrip(c component) (stripSpec, error) {
	var spec stripSpec
	err := c.decode(&spec)
	return spec, err
}

func (s stripSpec) strip(text string) string {
	if s.Content == "" {
		return text
	}
	for n := 0; n < s.Start && strings.HasPrefix(text, s.Content); n++ {
		text = text[len(s.Content):]
	}
	for n := 0; n < s.Stop && strings.HasSuffix(text, s.Content); n++ {
		text = text[:len(text)-len(s.Content)]
	}
	return text
}

func newWordPieceStage(c component) (stageMaker, error) {
	spec := struct {
		Prefix  string `json:"prefix"`
		Cleanup bool   `json:"cleanup"`
	}{"##", true}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	return func() decodeStage { return &wordPieceStage{prefix: spec.Prefix, cleanup: spec.Cleanup} }, nil
}

func newSuffixStage(c component) (stageMaker, error) {
	spec := struct {
		Suffix string `json:"suffix"`
	}{"</w>"}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	return func() decodeStage { return &suffixStage{suffix: spec.Suffix} }, nil
}
