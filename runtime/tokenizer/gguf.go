package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// GGUFVocab is the vocabulary in a GGUF file's metadata, under
// tokenizer.ggml.*.
type GGUFVocab struct {
	Model  string    // "gpt2" (byte-level BPE) or "llama" (SentencePiece)
	Pre    string    // how a "gpt2" text is cut into words; "" is "default"
	Tokens []string  // by id
	Scores []float32 // by id; needed for "llama"
	Types  []int32   // by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty: all normal
	Merges []string  // by rank, "left right"; needed for "gpt2"

	BOS, EOS, UNK int32 // -1: none

	AddBOS         bool // Encode with addSpecial begins with BOS
	AddEOS         bool // and ends with EOS
	AddSpacePrefix bool // a "llama" text begins with a space
}

// Token types in a GGUF file.
const (
	ggufNormal      = 1
	ggufUnknown     = 2
	ggufControl     = 3
	ggufUserDefined = 4
)

// FromGGUF builds the tokenizer that a tokenizer.json of the same model would
// give.
func FromGGUF(v GGUFVocab) (*Tokenizer, error) {
	t, err := v.build()
	if err != nil {
		return nil, fmt.Errorf("GGUF vocabulary: %w", err)
	}
	return t, nil
}

func (v *GGUFVocab) build() (*Tokenizer, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	vocab, err := v.vocabulary()
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{vocab: vocab, cache: newWordCache()}
	switch v.Model {
	case "gpt2":
		err = v.buildByteLevel(t)
	case "llama":
		err = v.buildSentencePiece(t)
	default:
		err = fmt.Errorf("tokenizer.ggml.model %q is not supported, only \"gpt2\" and \"llama\"", v.Model)
	}
	if err != nil {
		return nil, err
	}
	if t.added, err = newAddedTokens(v.addedTokens(), vocab, t.normalize); err != nil {
		return nil, err
	}
	if v.AddBOS && v.BOS >= 0 {
		t.post.prefix = []int32{v.BOS}
	}
	if v.AddEOS && v.EOS >= 0 {
		t.post.suffix = []int32{v.EOS}
	}
	return t, nil
}

// check looks for lists that do not fit together.
func (v *GGUFVocab) check() error {
	if len(v.Tokens) == 0 {
		return errors.New("tokenizer.ggml.tokens is missing or empty")
	}
	if n := len(v.Types); n != 0 && n != len(v.Tokens) {
		return fmt.Errorf("tokenizer.ggml.token_type has %d entries for %d tokens", n, len(v.Tokens))
	}
	if n := len(v.Scores); n != 0 && n != len(v.Tokens) {
		return fmt.Errorf("tokenizer.ggml.scores has %d entries for %d tokens", n, len(v.Tokens))
	}
	for _, id := range []int32{v.BOS, v.EOS, v.UNK} {
		if id < -1 || int(id) >= len(v.Tokens) {
			return fmt.Errorf("special token id %d lies outside the %d tokens", id, len(v.Tokens))
		}
	}
	for id, token := range v.Tokens {
		if !utf8.ValidString(token) {
			return fmt.Errorf("token %d is not UTF-8", id)
		}
	}
	return nil
}

func (v *GGUFVocab) vocabulary() (*vocabulary, error) {
	ids := make([]int32, len(v.Tokens))
	for i := range ids {
		ids[i] = int32(i)
	}
	return newVocabulary(v.Tokens, ids)
}

func (v *GGUFVocab) kind(id int) int32 {
	if len(v.Types) == 0 {
		return ggufNormal
	}
	return v.Types[id]
}

// addedTokens lists the tokens that are searched for in the text.
func (v *GGUFVocab) addedTokens() []addedToken {
	var out []addedToken
	for id, text := range v.Tokens {
		switch v.kind(id) {
		case ggufControl, ggufUnknown:
			out = append(out, addedToken{Content: text, Special: true})
		case ggufUserDefined:
			out = append(out, addedToken{Content: text})
		}
	}
	return out
}

func (v *GGUFVocab) buildByteLevel(t *Tokenizer) error {
	pre, err := lookupGGUFPre(v.Pre)
	if err != nil {
		return err
	}
	if pre.nfc {
		t.normalize = normalizers{unicodeForm(norm.NFC)}
	}
	if pre.digits {
		t.pre = append(t.pre, digits(true))
	}
	for _, expression := range pre.patterns {
		t.pre = append(t.pre, mustSplit(expression))
	}
	t.pre = append(t.pre, &byteLevel{})

	merges := make([]mergeFile, len(v.Merges))
	for i, text := range v.Merges {
		if merges[i], err = splitMerge(text); err != nil {
			return fmt.Errorf("tokenizer.ggml.merges: %w", err)
		}
	}
	b := newBPE(t.vocab)
	b.ignoreMerges = pre.ignoreMerges
	if err := b.setMerges(merges); err != nil {
		return fmt.Errorf("tokenizer.ggml.merges: %w", err)
	}
	b.prepare(true)
	t.model = b
	t.shareBytes()
	t.decoder = []stageMaker{func() decodeStage { return &byteLevelStage{} }}
	return nil
}

func (v *GGUFVocab) buildSentencePiece(t *Tokenizer) error {
	if len(v.Scores) == 0 {
		return errors.New("tokenizer.ggml.scores is missing, a \"llama\" vocabulary needs it")
	}
	if v.AddSpacePrefix {
		t.normalize = append(t.normalize, prepend(string(metaSpace)))
	}
	t.normalize = append(t.normalize, replace{literal(" "), string(metaSpace)})

	b := newBPE(t.vocab)
	b.unk = v.UNK
	b.fuseUnk = true
	b.byteFallback = true
	b.merges = v.scoredMerges(t.vocab)
	b.prepare(false)
	t.model = b

	t.decoder = []stageMaker{
		stateless(func(token string) string { return strings.ReplaceAll(token, string(metaSpace), " ") }),
		func() decodeStage { return &byteFallbackStage{} },
	}
	if v.AddSpacePrefix {
		t.decoder = append(t.decoder, func() decodeStage { return &stripStart{" ", 1} })
	}
	return nil
}

// scoredMerges finds every pair of tokens that makes up another token. The
// token with the highest score is merged first; equal scores have equal ranks.
func (v *GGUFVocab) scoredMerges(vocab *vocabulary) map[idPair]merge {
	ranks := v.ranks()
	merges := make(map[idPair]merge, 2*len(v.Tokens))
	for id, text := range v.Tokens {
		if v.kind(id) != ggufNormal {
			continue
		}
		for cut := range text {
			if cut == 0 {
				continue
			}
			left, okLeft := vocab.id(text[:cut])
			right, okRight := vocab.id(text[cut:])
			if okLeft && okRight {
				merges[makePair(left, right)] = merge{ranks[id], int32(id)}
			}
		}
	}
	return merges
}

// ranks orders the tokens by falling score; equal scores share a rank.
func (v *GGUFVocab) ranks() []int32 {
	order := make([]int32, len(v.Scores))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(v.Scores[b], v.Scores[a]) })
	ranks := make([]int32, len(order))
	rank := int32(0)
	for i, id := range order {
		if i > 0 && v.Scores[id] != v.Scores[order[i-1]] {
			rank++
		}
		ranks[id] = rank
	}
	return ranks
}
