package tokenizer

import (
	"fmt"
	"math"
)

// model turns one word into ids and appends them to dst. It is safe for
// concurrent use.
type model interface {
	encode(dst []int32, word string) ([]int32, error)
}

// build makes the model and its vocabulary. byteLevelLast: the words come from
// a ByteLevel pre-tokenizer, so a BPE model may ask for them as raw bytes.
func (m *modelFile) build(byteLevelLast bool) (model, *vocabulary, error) {
	vocab, err := newVocabulary(m.texts, m.ids)
	if err != nil {
		return nil, nil, fmt.Errorf("model: %w", err)
	}
	kind := m.Type
	if kind == "" && m.merges != nil {
		kind = "BPE" // files from before "type" was written
	}
	if (kind == "Unigram") != (m.scores != nil) {
		return nil, nil, fmt.Errorf("model: the form of its vocabulary is not that of a %q model", kind)
	}
	var built model
	switch kind {
	case "BPE":
		built, err = m.buildBPE(vocab, byteLevelLast)
	case "Unigram":
		built, err = m.buildUnigram(vocab)
	case "WordPiece":
		built, err = m.buildWordPiece(vocab)
	case "WordLevel":
		built, err = m.buildWordLevel(vocab)
	default:
		err = fmt.Errorf("a model of type %q is not supported", kind)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("model: %w", err)
	}
	return built, vocab, nil
}

func (m *modelFile) buildBPE(vocab *vocabulary, byteLevelLast bool) (model, error) {
	if m.Dropout != nil && *m.Dropout != 0 {
		return nil, fmt.Errorf("BPE dropout (%v) is not supported; set \"dropout\" to null", *m.Dropout)
	}
	b := newBPE(vocab)
	b.fuseUnk = m.FuseUnk
	b.byteFallback = m.ByteFallback
	b.ignoreMerges = m.IgnoreMerges
	b.prefix = value(m.Prefix, "")
	b.suffix = value(m.Suffix, "")
	if m.UnkToken != nil {
		b.unk = vocab.idOr(*m.UnkToken, -1)
	}
	if err := b.setMerges(m.merges); err != nil {
		return nil, err
	}
	b.prepare(byteLevelLast)
	return b, nil
}

func (m *modelFile) buildUnigram(vocab *vocabulary) (model, error) {
	u := &unigram{vocab: vocab, trie: newTrie(), scores: m.scores, unk: -1, byteFallback: m.ByteFallback, lowest: math.Inf(1)}
	for i, text := range m.texts {
		if text != "" {
			u.trie.insert(text, int32(i))
		}
		u.lowest = min(u.lowest, m.scores[i])
	}
	if m.UnkID != nil {
		if *m.UnkID < 0 || *m.UnkID >= len(m.texts) {
			return nil, fmt.Errorf("unk_id %d lies outside its vocabulary of %d tokens", *m.UnkID, len(m.texts))
		}
		u.unk = int32(*m.UnkID)
	}
	u.fallback = byteTokens(vocab)
	return u, nil
}

func (m *modelFile) buildWordPiece(vocab *vocabulary) (model, error) {
	unk, err := m.unknown(vocab, "[UNK]")
	if err != nil {
		return nil, err
	}
	return &wordPiece{vocab: vocab, unk: unk, prefix: value(m.Prefix, "##"), maxChars: value(m.MaxChars, 100)}, nil
}

func (m *modelFile) buildWordLevel(vocab *vocabulary) (model, error) {
	unk, err := m.unknown(vocab, "<unk>")
	if err != nil {
		return nil, err
	}
	return &wordLevel{vocab, unk}, nil
}

func (m *modelFile) unknown(vocab *vocabulary, usual string) (int32, error) {
	text := value(m.UnkToken, usual)
	id, ok := vocab.id(text)
	if !ok {
		return 0, fmt.Errorf("its unk_token %q is not in its vocabulary", text)
	}
	return id, nil
}

// value is *p, or missing for nil.
func value[T any](p *T, missing T) T {
	if p == nil {
		return missing
	}
	return *p
}

// byteTokens looks up the tokens <0x00> to <0xFF>, -1 where there is none.
func byteTokens(vocab *vocabulary) (ids [256]int32) {
	for b := range ids {
		ids[b] = vocab.idOr(fmt.Sprintf("<0x%02X>", b), -1)
	}
	return ids
}

// appendByteTokens appends the byte tokens of text, or nothing and false if
// one is missing.
func appendByteTokens(dst []int32, text string, tokens *[256]int32) ([]int32, bool) {
	start := len(dst)
	for i := range len(text) {
		id := tokens[text[i]]
		if id < 0 {
			return dst[:start], false
		}
		dst = append(dst, id)
	}
	return dst, true
}
