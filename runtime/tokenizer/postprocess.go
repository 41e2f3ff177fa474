package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// postProcessor puts special tokens around a text. Every kind that is
// supported comes down to this for a single text.
type postProcessor struct {
	prefix, suffix []int32
}

// around wraps ids in the special tokens.
func (p postProcessor) around(ids []int32) []int32 {
	if len(p.prefix)+len(p.suffix) == 0 {
		return ids
	}
	return slices.Concat(p.prefix, ids, p.suffix)
}

func parsePostProcessor(raw json.RawMessage) (postProcessor, error) {
	list, err := components(raw, "post_processor", "processors")
	if err != nil {
		return postProcessor{}, err
	}
	var all postProcessor
	for _, c := range list {
		p, err := parseOnePostProcessor(c)
		if err != nil {
			return postProcessor{}, err
		}
		// Each works on the result of the one before.
		all.prefix = slices.Concat(p.prefix, all.prefix)
		all.suffix = slices.Concat(all.suffix, p.suffix)
	}
	return all, nil
}

func parseOnePostProcessor(c component) (postProcessor, error) {
	switch c.kind {
	case "ByteLevel":
		return postProcessor{}, nil // moves offsets, not ids
	case "TemplateProcessing":
		return parseTemplate(c)
	case "BertProcessing", "RobertaProcessing":
		return parseClsSep(c)
	}
	return postProcessor{}, c.fail(errUnsupported)
}

// parseClsSep reads {"cls": ["[CLS]", 101], "sep": ["[SEP]", 102]}.
func parseClsSep(c component) (postProcessor, error) {
	var spec struct {
		Cls, Sep namedID
	}
	if err := c.decode(&spec); err != nil {
		return postProcessor{}, err
	}
	return postProcessor{prefix: []int32{int32(spec.Cls)}, suffix: []int32{int32(spec.Sep)}}, nil
}

// namedID is a token written as [text, id].
type namedID int32

// UnmarshalJSON reads [text, id].
func (n *namedID) UnmarshalJSON(data []byte) error {
	var text string
	var id int32
	if err := json.Unmarshal(data, &[]any{&text, &id}); err != nil {
		return err
	}
	*n = namedID(id)
	return nil
}

// parseTemplate reads the template for a single text: special tokens and,
// once, the text.
func parseTemplate(c component) (postProcessor, error) {
	var spec struct {
		Single []struct {
			SpecialToken *struct{ ID string }
			Sequence     *struct{ ID string }
		} `json:"single"`
		Tokens map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := c.decode(&spec); err != nil {
		return postProcessor{}, err
	}
	var out postProcessor
	texts := 0
	for _, entry := range spec.Single {
		switch {
		case entry.Sequence != nil:
			texts++
		case entry.SpecialToken != nil:
			token, ok := spec.Tokens[entry.SpecialToken.ID]
			if !ok {
				return postProcessor{}, c.fail(fmt.Errorf("its special_tokens lack %q", entry.SpecialToken.ID))
			}
			if texts == 0 {
				out.prefix = append(out.prefix, token.IDs...)
			} else {
				out.suffix = append(out.suffix, token.IDs...)
			}
		}
	}
	if texts != 1 {
		return postProcessor{}, c.fail(errors.New("its \"single\" template does not hold the text exactly once"))
	}
	return out, nil
}
