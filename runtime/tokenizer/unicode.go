package tokenizer

import "unicode"

// isWord is \w of the Rust regex package: letters, marks, decimal digits,
// connectors and what Unicode calls alphabetic or a join control.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

// isSymbol is [^\w\s].
func isSymbol(r rune) bool {
	return !isWord(r) && !unicode.IsSpace(r)
}

// isPunctuation is true for Unicode punctuation and for all ASCII characters
// that are neither letters, digits, spaces nor controls.
func isPunctuation(r rune) bool {
	if r < 0x80 {
		return r > ' ' && r < 0x7f && !isASCIILetterOrDigit(r)
	}
	return unicode.IsPunct(r)
}

func isASCIILetterOrDigit(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
}

// isIdeograph is the set of characters that BERT surrounds with spaces.
func isIdeograph(r rune) bool {
	switch {
	case r >= 0x4E00 && r <= 0x9FFF, r >= 0x3400 && r <= 0x4DBF,
		r >= 0xF900 && r <= 0xFAFF, r >= 0x20000 && r <= 0x2A6DF,
		r >= 0x2A700 && r <= 0x2B73F, r >= 0x2B740 && r <= 0x2B81F,
		r >= 0x2B920 && r <= 0x2CEAF, r >= 0x2F800 && r <= 0x2FA1F:
		return true
	}
	return false
}
