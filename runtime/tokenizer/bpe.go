package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe is byte-pair encoding: a word begins as single characters, and the pair
// with the lowest rank is merged until no pair is left.
type bpe struct {
	vocab        *vocabulary
	merges       map[idPair]merge
	unk          int32 // -1: unknown characters vanish
	fuseUnk      bool  // several unknown characters in a row give one token
	byteFallback bool  // unknown characters are spelled as <0xNN> tokens
	ignoreMerges bool  // a word that is a token is that token
	prefix       string
	suffix       string

	fallback   [256]int32 // ids of <0xNN>, -1
	byteIDs    [256]int32 // ids of the byte-level characters
	rawBytes   bool       // words come as bytes, not in the byte-level alphabet
	cutAtSpace bool       // see canCutAtSpace
}

// idPair is two neighbouring ids, packed: left<<32 | right.
type idPair uint64

func makePair(left, right int32) idPair {
	return idPair(uint32(left))<<32 | idPair(uint32(right))
}

// merge is what becomes of a pair. Lower ranks go first.
type merge struct{ rank, id int32 }

func newBPE(vocab *vocabulary) *bpe {
	return &bpe{vocab: vocab, unk: -1, fallback: byteTokens(vocab)}
}

// splitMerge reads a merge written as "left right".
func splitMerge(text string) (mergeFile, error) {
	left, right, ok := strings.Cut(text, " ")
	if !ok || strings.Contains(right, " ") {
		return mergeFile{}, fmt.Errorf("merge %q is not two tokens with one space between", text)
	}
	return mergeFile{left, right}, nil
}

// setMerges takes the merges in the order of their rank.
func (b *bpe) setMerges(list []mergeFile) error {
	b.merges = make(map[idPair]merge, len(list))
	var joined []byte
	for rank, m := range list {
		left, okLeft := b.vocab.id(m.left)
		right, okRight := b.vocab.id(m.right)
		joined = append(append(joined[:0], m.left...), strings.TrimPrefix(m.right, b.prefix)...)
		id, okJoined := b.vocab.ids[string(joined)]
		if !okLeft || !okRight || !okJoined {
			return fmt.Errorf("merge %d, %q with %q, uses a token that is not in its vocabulary", rank, m.left, m.right)
		}
		b.merges[makePair(left, right)] = merge{int32(rank), id}
	}
	return nil
}

// prepare works out the shortcuts, once everything else is set.
func (b *bpe) prepare(byteLevelLast bool) {
	if byteLevelLast && b.prefix == "" && b.suffix == "" {
		b.rawBytes = b.setByteIDs()
	}
	b.cutAtSpace = !b.rawBytes && b.canCutAtSpace()
}

// setByteIDs reports whether every byte has a token.
func (b *bpe) setByteIDs() bool {
	for i, r := range byteToRune {
		id, ok := b.vocab.id(string(r))
		if !ok {
			return false
		}
		b.byteIDs[i] = id
	}
	return true
}

// metaSpace stands for a space in SentencePiece vocabularies.
const metaSpace = '▁'

// canCutAtSpace tells whether no merge can join something to a ▁ after it.
// SentencePiece models get a whole text as one word; with this property it may
// be cut before every ▁ that follows another character, which keeps words
// short and lets the cache work.
func (b *bpe) canCutAtSpace() bool {
	if b.ignoreMerges || b.prefix != "" || b.suffix != "" {
		return false
	}
	if _, ok := b.vocab.id(string(metaSpace)); !ok {
		return false
	}
	for text := range b.vocab.ids {
		if nextCut(text) < len(text) {
			return false
		}
	}
	return true
}

// nextCut returns where in text the first ▁ after another character stands,
// len(text) if nowhere.
func nextCut(text string) int {
	other := false
	for i, r := range text {
		if r == metaSpace && other {
			return i
		}
		other = other || r != metaSpace
	}
	return len(text)
}

func (b *bpe) encode(dst []int32, word string) ([]int32, error) {
	if b.ignoreMerges {
		if id, ok := b.whole(word); ok {
			return append(dst, id), nil
		}
	}
	start := len(dst)
	dst = b.symbols(dst, word)
	return dst[:start+len(mergeAll(dst[start:], b.merges))], nil
}

// whole looks a word up as one token.
func (b *bpe) whole(word string) (int32, bool) {
	if !b.rawBytes {
		return b.vocab.id(word)
	}
	var buf [2 * maxCachedWord]byte
	id, ok := b.vocab.ids[string(appendByteLevel(buf[:0], word))]
	return id, ok
}

// symbols appends the ids of a word's characters.
func (b *bpe) symbols(dst []int32, word string) []int32 {
	if b.rawBytes {
		for i := range len(word) {
			dst = append(dst, b.byteIDs[word[i]])
		}
		return dst
	}
	unknown := false // an unknown token waits to be appended
	for i := 0; i < len(word); {
		_, size := utf8.DecodeRuneInString(word[i:])
		text := word[i : i+size]
		i += size
		if id, ok := b.vocab.id(b.affixed(text, i == size, i == len(word))); ok {
			if unknown {
				dst = append(dst, b.unk)
				unknown = false
			}
			dst = append(dst, id)
			continue
		}
		if b.byteFallback {
			var ok bool
			if dst, ok = appendByteTokens(dst, text, &b.fallback); ok {
				continue
			}
		}
		if b.unk >= 0 {
			if unknown && !b.fuseUnk {
				dst = append(dst, b.unk)
			}
			unknown = true
		}
	}
	if unknown {
		dst = append(dst, b.unk)
	}
	return dst
}

// affixed is a character as the vocabulary spells it at its place in a word.
func (b *bpe) affixed(text string, first, last bool) string {
	if !first && b.prefix != "" {
		text = b.prefix + text
	}
	if last && b.suffix != "" {
		text += b.suffix
	}
	return text
}
