package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What Python does with text and Go does otherwise.

// isSpace is str.isspace: Unicode's white space and the four ASCII separators.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

func runeCount(s string) int64 { return int64(utf8.RuneCountInString(s)) }

// upper and lower map one letter to more than one where Python does so often
// enough to be met.
func upper(s string) string { return strings.ReplaceAll(strings.ToUpper(s), "ß", "SS") }
func lower(s string) string { return strings.ToLower(s) }

func capitalize(s string) string {
	if s == "" {
		return s
	}
	first, n := utf8.DecodeRuneInString(s)
	return titleRune(first) + lower(s[n:])
}

func titleRune(c rune) string {
	if c == 'ß' {
		return "Ss"
	}
	return string(unicode.ToTitle(c))
}

// title is str.title: every letter after something that is no letter.
func title(s string) string {
	var b strings.Builder
	inWord := false
	for _, c := range s {
		if inWord {
			b.WriteRune(unicode.ToLower(c))
		} else {
			b.WriteString(titleRune(c))
		}
		inWord = unicode.IsLetter(c)
	}
	return b.String()
}

// titleWords is the title filter: every letter after a blank, - or an opening
// bracket.
func titleWords(s string) string {
	start := true
	return strings.Map(func(c rune) rune {
		wasStart := start
		start = isSpace(c) || strings.ContainsRune("-({[<", c)
		if wasStart {
			return unicode.ToUpper(c)
		}
		return unicode.ToLower(c)
	}, s)
}

func swapCase(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsUpper(c) {
			return unicode.ToLower(c)
		}
		return unicode.ToUpper(c)
	}, s)
}

// hasCase tells whether s has letters with case, all of which pass.
func hasCase(s string, pass func(rune) bool) bool {
	found := false
	for _, c := range s {
		if unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) {
			if !pass(c) {
				return false
			}
			found = true
		}
	}
	return found
}

// allRunes tells whether s is not empty and every character passes.
func allRunes(s string, pass func(rune) bool) bool {
	for _, c := range s {
		if !pass(c) {
			return false
		}
	}
	return s != ""
}

func isDigitRune(c rune) bool {
	return unicode.IsDigit(c) || c == '²' || c == '³' || c == '¹' || c == '⁰' || c >= '⁴' && c <= '⁹' || c >= '₀' && c <= '₉'
}

func isAlnum(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }

// strip cuts off the characters in chars, or white space if chars is nil.
func strip(s string, chars *string, left, right bool) string {
	cut := isSpace
	if chars != nil {
		cut = func(c rune) bool { return strings.ContainsRune(*chars, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

// growParts counts the memory of the list that s is about to be split into,
// at each character for which cut holds.
func (r *renderer) growParts(s string, cut func(rune) bool) {
	n := 1
	for _, c := range s {
		if cut(c) {
			n++
		}
	}
	r.growTimes(n, 4*itemBytes)
}

// splitFields is str.split() on white space, at most limit times if limit >= 0.
func splitFields(s string, limit int64) (out []string) {
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		i := strings.IndexFunc(s, isSpace)
		if limit == 0 || i < 0 {
			if i >= 0 {
				return append(out, s)
			}
			i = len(s)
		}
		out = append(out, s[:i])
		s = s[i:]
		limit--
	}
	return out
}

// splitFieldsRight is str.rsplit() on white space.
func splitFieldsRight(s string, limit int64) (out []string) {
	for s = strings.TrimRightFunc(s, isSpace); s != ""; s = strings.TrimRightFunc(s, isSpace) {
		i := strings.LastIndexFunc(s, isSpace)
		if limit == 0 || i < 0 {
			out = append(out, s)
			break
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		out = append(out, s[i+n:])
		s = s[:i]
		limit--
	}
	slices.Reverse(out)
	return out
}

// splitRight is str.rsplit(sep, limit).
func splitRight(s, sep string, limit int64) (out []string) {
	for ; limit != 0; limit-- {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		out = append(out, s[i+len(sep):])
		s = s[:i]
	}
	out = append(out, s)
	slices.Reverse(out)
	return out
}

// splitLines is str.splitlines.
func splitLines(s string, keepEnds bool) (out []string) {
	for s != "" {
		i := strings.IndexFunc(s, isLineEnd)
		if i < 0 {
			return append(out, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		if keepEnds {
			out = append(out, s[:i+n])
		} else {
			out = append(out, s[:i])
		}
		s = s[i+n:]
	}
	return out
}

func isLineEnd(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

// pad fills s up to width characters; side is where the text goes: '<', '>',
// '^' or 'c' (center), or '=' (right, filled after a sign).
func (r *renderer) pad(s string, width int64, fill string, side byte) string {
	n := width - runeCount(s)
	if n <= 0 {
		return s
	}
	switch side {
	case '<':
		return s + r.repeat(fill, n)
	case '^':
		return r.repeat(fill, n/2) + s + r.repeat(fill, n-n/2)
	case 'c':
		left := n/2 + n&width&1 // where str.center, unlike '^', puts an odd blank
		return r.repeat(fill, left) + s + r.repeat(fill, n-left)
	case '=':
		if s != "" && (s[0] == '-' || s[0] == '+') {
			return s[:1] + r.repeat(fill, n) + s[1:]
		}
	}
	return r.repeat(fill, n) + s
}

// replace is str.replace; a count below 0 means all.
func (r *renderer) replace(s, old, with string, count int64) string {
	found := int64(strings.Count(s, old))
	if count >= 0 {
		found = min(found, count)
	}
	if len(with) > len(old) {
		r.growTimes(int(found), len(with)-len(old))
	}
	return strings.Replace(s, old, with, int(found))
}

// join puts the texts together.
func (r *renderer) join(parts []string, sep string) string {
	r.growTimes(len(parts), len(sep))
	for _, part := range parts {
		r.grow(len(part))
	}
	return strings.Join(parts, sep)
}

func stringList(parts []string) *List {
	l := &List{items: make([]any, len(parts))}
	for i, s := range parts {
		l.items[i] = s
	}
	return l
}
