package tokenizer

import (
	"errors"
	"math"
	"unicode/utf8"
)

// unigram finds the segmentation of a word with the highest sum of scores.
type unigram struct {
	vocab        *vocabulary
	trie         *trie
	scores       []float64 // log-probability by id
	lowest       float64   // the lowest score
	unk          int32     // -1: none
	byteFallback bool
	fallback     [256]int32
}

// unknownPenalty is how much worse an unknown character is than the worst
// token.
const unknownPenalty = 10

// bestEnd is the best way to reach a place in the word.
type bestEnd struct {
	score float64
	start int // where the last token begins; -1: the place is not reached
	id    int32
}

func (u *unigram) encode(dst []int32, word string) ([]int32, error) {
	ends := u.search(word)
	var tokens []span // backwards; match marks an unknown stretch
	for end := len(word); end > 0; {
		e := ends[end]
		unknown := e.id == u.unk
		if n := len(tokens); unknown && n > 0 && tokens[n-1].match {
			tokens[n-1].start = e.start // unknown neighbours count as one
		} else {
			tokens = append(tokens, span{e.start, end, unknown})
		}
		end = e.start
	}
	for i := len(tokens) - 1; i >= 0; i-- {
		text := word[tokens[i].start:tokens[i].end]
		if id, ok := u.vocab.id(text); ok {
			dst = append(dst, id)
			continue
		}
		if u.byteFallback {
			var ok bool
			if dst, ok = appendByteTokens(dst, text, &u.fallback); ok {
				continue
			}
		}
		if u.unk < 0 {
			return nil, errors.New("the text holds a character that the vocabulary lacks, and the model has no unk_id")
		}
		dst = append(dst, u.unk)
	}
	return dst, nil
}

// search fills in the best way to every place, from left to right.
func (u *unigram) search(word string) []bestEnd {
	ends := make([]bestEnd, len(word)+1)
	for i := range ends {
		ends[i] = bestEnd{math.Inf(-1), -1, -1}
	}
	ends[0].score = 0
	offer := func(start, end int, id int32, score float64) {
		if score += ends[start].score; ends[end].start < 0 || score > ends[end].score {
			ends[end] = bestEnd{score, start, id}
		}
	}
	for start := 0; start < len(word); {
		_, size := utf8.DecodeRuneInString(word[start:])
		known := false // the character alone is a token
		node := int32(0)
		for end := start + 1; end <= len(word); end++ {
			next, ok := u.trie.step(node, word[end-1])
			if !ok {
				break
			}
			node = next
			if id := u.trie.ids[node]; id >= 0 {
				offer(start, end, id, u.scores[id])
				known = known || end == start+size
			}
		}
		if !known {
			offer(start, start+size, u.unk, u.lowest-unknownPenalty)
		}
		start += size
	}
	return ends
}
