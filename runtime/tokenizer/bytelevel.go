package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Byte-level tokenizers write every byte as one printable character: printable
// Latin-1 bytes stand for themselves, the others get the characters from
// U+0100 on, in order.
var byteToRune, runeToByte = byteAlphabet()

func byteAlphabet() (toRune [256]rune, toByte map[rune]byte) {
	toByte = make(map[rune]byte, 256)
	next := rune(256)
	for b := range toRune {
		r := rune(b)
		printable := r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE && r <= 0xFF
		if !printable {
			r = next
			next++
		}
		toRune[b] = r
		toByte[r] = byte(b)
	}
	return toRune, toByte
}

// appendByteLevel appends text in the byte-level alphabet.
func appendByteLevel(dst []byte, text string) []byte {
	for i := range len(text) {
		dst = utf8.AppendRune(dst, byteToRune[text[i]])
	}
	return dst
}

// byteLevelBytes undoes appendByteLevel. A token with any other character
// (an added token) stands for itself.
func byteLevelBytes(dst []byte, token string) []byte {
	start := len(dst)
	for _, r := range token {
		b, ok := runeToByte[r]
		if !ok {
			return append(dst[:start], token...)
		}
		dst = append(dst, b)
	}
	return dst
}

// gpt2Pattern is what the ByteLevel pre-tokenizer splits by.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// byteLevel is the ByteLevel pre-tokenizer.
type byteLevel struct {
	prefixSpace bool
	words       *split // nil: do not split
	keepBytes   bool   // leave the change of alphabet to the model
}

func newByteLevel(c component) (*byteLevel, error) {
	spec := struct {
		AddPrefixSpace bool  `json:"add_prefix_space"`
		UseRegex       *bool `json:"use_regex"`
	}{AddPrefixSpace: true}
	if err := c.decode(&spec); err != nil {
		return nil, err
	}
	b := &byteLevel{prefixSpace: spec.AddPrefixSpace}
	if spec.UseRegex == nil || *spec.UseRegex {
		b.words = mustSplit(gpt2Pattern)
	}
	return b, nil
}

func (b *byteLevel) apply(dst []piece, p piece) ([]piece, error) {
	if b.prefixSpace && !strings.HasPrefix(p.text, " ") {
		p.text = " " + p.text
	}
	start := len(dst)
	if b.words == nil {
		dst = append(dst, p)
	} else {
		var err error
		if dst, err = b.words.apply(dst, p); err != nil {
			return nil, err
		}
	}
	if !b.keepBytes {
		for i := range dst[start:] {
			word := &dst[start+i]
			word.text = string(appendByteLevel(nil, word.text))
		}
	}
	return dst, nil
}
