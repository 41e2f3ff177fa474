// Package tokenizer turns text into the token ids of a language model and
// back.
//
// A [Tokenizer] comes from a tokenizer.json ([Parse]) or from the vocabulary
// inside a GGUF file ([FromGGUF]). It gives the same ids as the Hugging Face
// tokenizers library. Truncation and padding settings of a file are ignored.
//
// Encoding goes through stages that the file describes: added tokens are cut
// out of the text, the rest is normalized and cut into words
// (pre-tokenization), the model turns words into ids, and a post-processor
// puts special tokens around them.
package tokenizer

import "strings"

// Tokenizer is safe for concurrent use.
type Tokenizer struct {
	vocab     *vocabulary
	added     *addedTokens
	normalize normalizers
	pre       preTokenizers
	model     model
	post      postProcessor
	decoder   []stageMaker
	cache     *wordCache
}

// Encode returns the ids of text. Added and special tokens that are written
// out in the text become their ids. addSpecial also puts the tokens around it
// that the model expects, such as one for the beginning of a text. A run of
// bytes that are not UTF-8 counts as one U+FFFD.
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	ids := make([]int32, 0, len(text)/4+8)
	var err error
	for _, p := range t.added.raw.cut(nil, piece{text, true}) {
		if p.token != nil {
			ids = append(ids, p.token.id)
			continue
		}
		if ids, err = t.encodePart(ids, p.piece); err != nil {
			return nil, err
		}
	}
	if addSpecial {
		ids = t.post.around(ids)
	}
	return ids, nil
}

// encodePart appends the ids of a text without raw added tokens.
func (t *Tokenizer) encodePart(ids []int32, p piece) ([]int32, error) {
	var err error
	if p.text, err = t.normalize.normalize(p.text); err != nil {
		return nil, err
	}
	for _, p := range t.added.normalized.cut(nil, p) {
		if p.token != nil {
			ids = append(ids, p.token.id)
			continue
		}
		words, err := t.pre.apply(p.piece)
		if err != nil {
			return nil, err
		}
		for _, word := range words {
			if ids, err = t.encodeWord(ids, word.text); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// encodeWord appends the ids of a word from the pre-tokenizer.
func (t *Tokenizer) encodeWord(ids []int32, word string) ([]int32, error) {
	if b, ok := t.model.(*bpe); ok && b.cutAtSpace {
		for {
			cut := nextCut(word)
			if cut == len(word) {
				break
			}
			var err error
			if ids, err = t.encodeCached(ids, word[:cut]); err != nil {
				return nil, err
			}
			word = word[cut:]
		}
	}
	return t.encodeCached(ids, word)
}

func (t *Tokenizer) encodeCached(ids []int32, word string) ([]int32, error) {
	if known, ok := t.cache.get(word); ok {
		return append(ids, known...), nil
	}
	start := len(ids)
	ids, err := t.model.encode(ids, word)
	if err != nil {
		return nil, err
	}
	t.cache.put(word, ids[start:])
	return ids, nil
}

// Decode returns the text of ids. skipSpecial leaves special tokens out. Ids
// that the tokenizer does not know give nothing, and bytes that are not UTF-8
// become U+FFFD.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	for _, id := range ids {
		d.feed(id)
	}
	return d.Flush()
}

// VocabSize is one more than the highest id. The model's output may be larger,
// where its makers rounded up.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.tokens) }

// TokenID returns the id of a token as the vocabulary spells it.
func (t *Tokenizer) TokenID(token string) (int32, bool) { return t.vocab.id(token) }

// Token returns the vocabulary's spelling of an id, which is not its text:
// see [Tokenizer.Decode] for that.
func (t *Tokenizer) Token(id int32) (string, bool) { return t.vocab.token(id) }

// IsSpecial tells whether id is a special token, such as an end-of-text mark.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.added.isSpecial(id) }

// PrefixIDs returns what Encode with addSpecial puts before the text: usually
// nothing or the token for the beginning of a text.
func (t *Tokenizer) PrefixIDs() []int32 { return append([]int32(nil), t.post.prefix...) }

// SuffixIDs returns what Encode with addSpecial puts after the text.
func (t *Tokenizer) SuffixIDs() []int32 { return append([]int32(nil), t.post.suffix...) }

// WithSpecial returns a tokenizer that puts these ids around a text instead.
// It shares everything else with t.
func (t *Tokenizer) WithSpecial(prefix, suffix []int32) *Tokenizer {
	other := *t
	other.post = postProcessor{append([]int32(nil), prefix...), append([]int32(nil), suffix...)}
	return &other
}
