package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// component is one entry of a tokenizer.json's normalizer, pre_tokenizer,
// post_processor or decoder.
type component struct {
	kind string // its "type"
	path string // where it stands, for error messages
	raw  json.RawMessage
}

// maxNesting bounds Sequences inside Sequences.
const maxNesting = 16

// components lists the components of one section in the order they run: a
// Sequence counts as its parts, which sit under the key listKey. A missing
// section (null) is an empty list.
func components(raw json.RawMessage, path, listKey string) ([]component, error) {
	return appendComponents(nil, raw, path, listKey, 0)
}

func appendComponents(out []component, raw json.RawMessage, path, listKey string, depth int) ([]component, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("%s: Sequences are nested more than %d deep", path, maxNesting)
	}
	if len(raw) == 0 || string(raw) == "null" {
		return out, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var kind string
	if err := json.Unmarshal(fields["type"], &kind); err != nil {
		return nil, fmt.Errorf("%s: it has no \"type\" that is a string", path)
	}
	if kind != "Sequence" {
		return append(out, component{kind: kind, path: path, raw: raw}), nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(fields[listKey], &parts); err != nil {
		return nil, fmt.Errorf("%s: its Sequence has no list %q", path, listKey)
	}
	for i, part := range parts {
		var err error
		out, err = appendComponents(out, part, fmt.Sprintf("%s.%s[%d]", path, listKey, i), listKey, depth+1)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// decode reads the component's fields into v, which holds the defaults.
func (c component) decode(v any) error {
	if err := json.Unmarshal(c.raw, v); err != nil {
		return c.fail(err)
	}
	return nil
}

// fail names the component in err.
func (c component) fail(err error) error {
	return fmt.Errorf("%s (%s): %w", c.path, c.kind, err)
}

var errUnsupported = errors.New("this kind of component is not supported")

// patternSpec is how tokenizer.json writes what to search for: {"String": …}
// or {"Regex": …}.
type patternSpec struct {
	String *string
	Regex  *string
}

func (p patternSpec) compile() (pattern, error) {
	switch {
	case p.Regex != nil:
		return newRegex(*p.Regex)
	case p.String != nil && *p.String != "":
		return literal(*p.String), nil
	}
	return nil, errors.New("its pattern has neither a text in \"String\" nor one in \"Regex\"")
}
