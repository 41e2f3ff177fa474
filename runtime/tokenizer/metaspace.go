package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

// metaspace writes spaces as a visible character, puts one in front and cuts
// before each.
type metaspace struct {
	replacement string
	prepend     prependScheme
	words       *split // nil: do not cut
}

// prependScheme says which pieces get a replacement character in front.
type prependScheme string

const (
	prependAlways prependScheme = "always"
	prependFirst  prependScheme = "first" // only the start of the text
	prependNever  prependScheme = "never"
)

// metaspaceSpec is shared by the pre-tokenizer and the decoder.
type metaspaceSpec struct {
	Replacement    string        `json:"replacement"`
	Prepend        prependScheme `json:"prepend_scheme"`
	AddPrefixSpace *bool         `json:"add_prefix_space"` // before prepend_scheme existed
	Split          *bool         `json:"split"`
}

func parseMetaspace(c component) (metaspaceSpec, error) {
	spec := metaspaceSpec{Replacement: "▁"}
	if err := c.decode(&spec); err != nil {
		return spec, err
	}
	if spec.Prepend == "" {
		spec.Prepend = prependAlways
		if spec.AddPrefixSpace != nil && !*spec.AddPrefixSpace {
			spec.Prepend = prependNever
		}
	}
	switch spec.Prepend {
	case prependAlways, prependFirst, prependNever:
	default:
		return spec, c.fail(fmt.Errorf("unknown prepend_scheme %q", spec.Prepend))
	}
	if spec.Replacement == "" {
		return spec, c.fail(errors.New("its replacement is empty"))
	}
	return spec, nil
}

func newMetaspace(c component) (*metaspace, error) {
	spec, err := parseMetaspace(c)
	if err != nil {
		return nil, err
	}
	m := &metaspace{replacement: spec.Replacement, prepend: spec.Prepend}
	if spec.Split == nil || *spec.Split {
		m.words = &split{pattern: literal(spec.Replacement), behavior: mergedWithNext}
	}
	return m, nil
}

func (m *metaspace) apply(dst []piece, p piece) ([]piece, error) {
	p.text = strings.ReplaceAll(p.text, " ", m.replacement)
	wanted := m.prepend == prependAlways || m.prepend == prependFirst && p.first
	if wanted && !strings.HasPrefix(p.text, m.replacement) {
		p.text = m.replacement + p.text
	}
	if m.words == nil {
		return append(dst, p), nil
	}
	return m.words.apply(dst, p)
}
