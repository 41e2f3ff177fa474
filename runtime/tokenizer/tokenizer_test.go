package tokenizer

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

// byteLevelJSON is a byte-level tokenizer with all bytes (ids 0 to 255 in
// order), three merges and two added tokens.
func byteLevelJSON(t testing.TB) string {
	t.Helper()
	vocab := map[string]int{}
	for b, r := range byteToRune {
		vocab[string(r)] = b
	}
	for i, token := range []string{"he", "ll", "hell", "Ġhe"} {
		vocab[token] = 256 + i
	}
	return tokenizerFile{
		AddedTokens: section(`[
			{"id":260,"content":"<|end|>","special":true,"normalized":false},
			{"id":261,"content":"<tool>","special":false,"normalized":false}]`),
		PreTokenizer: section(`{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}`),
		Post:         section(`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|end|>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<|end|>":{"ids":[260]}}}`),
		Decoder:      section(`{"type":"ByteLevel"}`),
		Model:        map[string]any{"type": "BPE", "vocab": vocab, "merges": []any{[]string{"h", "e"}, []string{"l", "l"}, []string{"he", "ll"}, []string{"Ġ", "he"}}},
	}.json(t)
}

func parse(t testing.TB, text string) *Tokenizer {
	t.Helper()
	tok, err := Parse([]byte(text))
	require.NoError(t, err)
	return tok
}

func encode(t testing.TB, tok *Tokenizer, text string) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, false)
	require.NoError(t, err)
	return ids
}

func TestByteLevel(t *testing.T) {
	tok := parse(t, byteLevelJSON(t))
	require.Equal(t, []int32{258, 'o', 259, 'l', 'p'}, encode(t, tok, "hello help"))
	require.Equal(t, []int32{0xC3, 0xA9, 260, ' ', 261, 'x'}, encode(t, tok, "é<|end|> <tool>x"))
	require.Equal(t, []int32{0xEF, 0xBF, 0xBD}, encode(t, tok, "\xff"), "invalid bytes count as U+FFFD")
	require.Equal(t, []int32{}, encode(t, tok, ""))

	ids, err := tok.Encode("he", true)
	require.NoError(t, err)
	require.Equal(t, []int32{260, 256}, ids)
	require.Equal(t, []int32{260}, tok.PrefixIDs())
	require.Empty(t, tok.SuffixIDs())

	require.Equal(t, "hello<|end|><tool>", tok.Decode([]int32{258, 'o', 260, 261}, false))
	require.Equal(t, "hello<tool>", tok.Decode([]int32{258, 'o', 260, 261, 9999, -1}, true))

	require.Equal(t, 262, tok.VocabSize())
	require.True(t, tok.IsSpecial(260))
	require.False(t, tok.IsSpecial(261))
	require.False(t, tok.IsSpecial(-5))
	id, ok := tok.TokenID("Ġhe")
	require.True(t, ok)
	require.Equal(t, int32(259), id)
	text, ok := tok.Token(259)
	require.True(t, ok)
	require.Equal(t, "Ġhe", text)
	_, ok = tok.Token(262)
	require.False(t, ok)
}

func TestWithSpecial(t *testing.T) {
	tok := parse(t, byteLevelJSON(t))
	other := tok.WithSpecial([]int32{1, 2}, []int32{3})
	ids, err := other.Encode("he", true)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 256, 3}, ids)
	require.Equal(t, []int32{260}, tok.PrefixIDs(), "the first tokenizer is as it was")
	require.Equal(t, []int32{3}, other.SuffixIDs())
}

func TestStreamHoldsBackCharacters(t *testing.T) {
	tok := parse(t, byteLevelJSON(t))
	for _, test := range []struct {
		bytes  string
		pieces []string // of each byte, then of Flush
	}{
		{"aé", []string{"a", "", "é", ""}},
		{"😀!", []string{"", "", "", "😀", "!", ""}},
		{"\xe2\x82", []string{"", "", "\ufffd"}},
		{"\xe2\x82a", []string{"", "", "\ufffda", ""}},
		{"\xf0\x9f\xe2\x82\xac", []string{"", "", "\ufffd", "", "€", ""}},
		{"\xff\x80", []string{"\ufffd", "\ufffd", ""}},
		{"\xc3\xc3\xa9", []string{"", "\ufffd", "é", ""}},
	} {
		d := tok.NewDecoder(false)
		var got []string
		for _, b := range []byte(test.bytes) {
			got = append(got, d.Add(int32(b)))
		}
		require.Equal(t, test.pieces, append(got, d.Flush()), "%q", test.bytes)
	}
}

func TestSentencePieceDecoder(t *testing.T) {
	tok := parse(t, `{
		"added_tokens": [{"id":1,"content":"<s>","special":true,"normalized":false}],
		"decoder": {"type":"Sequence","decoders":[
			{"type":"Replace","pattern":{"String":"▁"},"content":" "}, {"type":"ByteFallback"}, {"type":"Fuse"},
			{"type":"Strip","content":" ","start":1,"stop":0}]},
		"model": {"type":"BPE","vocab":{"▁":0,"<s>":1,"▁a":2,"b":3,"<0xC3>":4,"<0xA9>":5,"▁▁":6},"merges":[],"byte_fallback":true}}`)
	for _, test := range []struct {
		ids    []int32
		pieces []string
	}{
		{[]int32{1, 2, 3}, []string{"", "a", "b", ""}},
		{[]int32{0, 2}, []string{"", " a", ""}},
		{[]int32{6, 0, 0}, []string{" ", " ", " ", ""}},
		{[]int32{3, 4, 5, 3}, []string{"b", "", "", "éb", ""}},
		{[]int32{4, 5}, []string{"", "", "é"}},
		{[]int32{4, 4, 5, 2}, []string{"", "", "", "\ufffd\ufffd\ufffd a", ""}},
		{[]int32{4}, []string{"", "\ufffd"}},
		{nil, []string{""}},
	} {
		d := tok.NewDecoder(true)
		var got []string
		for _, id := range test.ids {
			got = append(got, d.Add(id))
		}
		require.Equal(t, test.pieces, append(got, d.Flush()), "%v", test.ids)
		require.Equal(t, strings.Join(test.pieces, ""), tok.Decode(test.ids, true))
	}
}

// The reference reads out of bounds here for short tokens.
func TestStripAtBothEnds(t *testing.T) {
	spec := stripSpec{Content: " ", Start: 1, Stop: 2}
	for in, want := range map[string]string{"": "", " ": "", "  ": "", "  a   ": " a ", "a": "a", "a ": "a"} {
		require.Equal(t, want, spec.strip(in), "%q", in)
	}
	tok := parse(t, `{"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":"-","start":1,"stop":2}]},
		"model":{"type":"WordLevel","vocab":{"-":0,"a":1,"<unk>":2}}}`)
	require.Equal(t, "-a-", tok.Decode([]int32{0, 0, 1, 0, 0, 0}, false))
}

func TestMergeOrder(t *testing.T) {
	// Tokens: a=0 b=1 ab=2 aa=3 aab=4.
	merges := map[idPair]merge{
		makePair(0, 1): {rank: 1, id: 2},
		makePair(0, 0): {rank: 0, id: 3},
		makePair(3, 1): {rank: 2, id: 4},
	}
	for text, want := range map[string][]int32{"ab": {2}, "aab": {4}, "aaab": {3, 2}, "abab": {2, 2}, "b": {1}, "": {}, "aaaab": {3, 4}} {
		ids := make([]int32, 0, len(text))
		for _, c := range text {
			ids = append(ids, c-'a')
		}
		require.Equal(t, want, mergeShort(append([]int32{}, ids...), merges), text)
		if len(ids) > 0 {
			require.Equal(t, want, mergeLong(append([]int32{}, ids...), merges), text)
		}
	}
}

func TestLongWordsMergeLikeShortOnes(t *testing.T) {
	tok := parse(t, byteLevelJSON(t))
	want := []int32{}
	for range 100 {
		want = append(want, 258, 256)
	}
	require.Equal(t, want, encode(t, tok, strings.Repeat("hellhe", 100)))
}

func TestCutAtSpace(t *testing.T) {
	for text, want := range map[string]int{"": 0, "▁": 3, "▁▁a": 7, "a▁b": 1, "▁a▁▁b": 4} {
		require.Equal(t, want, nextCut(text), text)
	}
	cut := func(extra string) bool {
		tok := parse(t, `{"model":{"type":"BPE","vocab":{"▁":0,"▁▁a":1`+extra+`},"merges":[]}}`)
		return tok.model.(*bpe).cutAtSpace
	}
	require.True(t, cut(""))
	require.False(t, cut(`,"a▁":2`))
}

func TestNormalFormsOfLongMarkRuns(t *testing.T) {
	// 40 marks below (class 220) and above (230), mixed.
	text := "a" + strings.Repeat("\u0301\u0323", 20) + "b"
	sorted := strings.Repeat("\u0323", 20) + strings.Repeat("\u0301", 20)
	require.Equal(t, "a"+sorted+"b", normalizeTo(norm.NFD, text))
	require.Equal(t, "\u1ea1"+sorted[2:]+"b", normalizeTo(norm.NFC, text), "a and one dot below are ạ")
	require.Equal(t, "x\u034fy", normalizeTo(norm.NFC, "x\u034fy"), "a joiner of the text itself stays")

	for _, text := range append(randomTexts(6, 300), randomRunes(6, 300)...) {
		for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			want := form.String(text)
			if strings.Contains(want, graphemeJoiner) {
				continue
			}
			require.Equal(t, want, normalizePlain(form, text), "%+q", text)
		}
	}
}

func TestSplitBehaviors(t *testing.T) {
	// Worked out by hand on "-a--b-".
	for b, want := range map[behavior]string{
		isolated:           "-|a|-|-|b|-",
		removed:            "a|b",
		mergedWithPrevious: "-|a-|-|b-",
		mergedWithNext:     "-a|-|-b|-",
		contiguous:         "-|a|--|b|-",
	} {
		s := &split{pattern: literal("-"), behavior: b}
		pieces, err := s.apply(nil, piece{"-a--b-", true})
		require.NoError(t, err)
		var texts []string
		for i, p := range pieces {
			texts = append(texts, p.text)
			require.Equal(t, i == 0 && b != removed, p.first)
		}
		require.Equal(t, want, strings.Join(texts, "|"))
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := parse(t, byteLevelJSON(t))
	texts := randomTexts(11, 100)
	want := make([][]int32, len(texts))
	for i, text := range texts {
		want[i] = encode(t, parse(t, byteLevelJSON(t)), text)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i, text := range texts {
				ids, err := tok.Encode(text, false)
				if err != nil || fmt.Sprint(ids) != fmt.Sprint(want[i]) {
					t.Errorf("ids of %q: %v (%v), want %v", text, ids, err, want[i])
				}
				tok.Decode(ids, true)
			}
		})
	}
	wg.Wait()
}

func TestWordCacheIsBounded(t *testing.T) {
	c := newWordCache()
	for i := range 3 * cacheShards * shardEntries {
		c.put(fmt.Sprint(i), []int32{int32(i)})
	}
	for i := range c.shards {
		require.LessOrEqual(t, len(c.shards[i].words), shardEntries)
	}
	c.put("word", []int32{1, 2})
	ids, ok := c.get("word")
	require.True(t, ok)
	require.Equal(t, []int32{1, 2}, ids)
	long := strings.Repeat("x", maxCachedWord+1)
	c.put(long, []int32{1})
	_, ok = c.get(long)
	require.False(t, ok)
}

// One long word must not take quadratic time, and long runs of one kind of
// character must not exhaust the regular expressions.
func TestLongInput(t *testing.T) {
	tok := parse(t, byteLevelJSON(t))
	for _, text := range []string{" ", "a", "\n", "1", "-", "é", "hell", " \n"} {
		text = strings.Repeat(text, 200_000)
		ids := encode(t, tok, text)
		require.Equal(t, text, tok.Decode(ids, false))
	}
}

func TestHostileExpressionTimesOut(t *testing.T) {
	tok := parse(t, `{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"((a|b|ab)*)*c"},"behavior":"Isolated","invert":false},
		"model":{"type":"WordLevel","vocab":{"<unk>":0}}}`)
	_, err := tok.Encode(strings.Repeat("ab", 60)+"!", false)
	require.ErrorContains(t, err, `searching for "((a|b|ab)*)*c"`)
}

func TestParseErrors(t *testing.T) {
	with := func(name, value string) string {
		return `{"` + name + `":` + value + `,"model":{"type":"WordLevel","vocab":{"<unk>":0}}}`
	}
	model := func(value string) string { return `{"model":` + value + `}` }
	nested := strings.Repeat(`{"type":"Sequence","normalizers":[`, 40) + strings.Repeat(`]}`, 40)
	for _, test := range []struct{ text, want string }{
		{``, `byte 0: expected '{' but the text ends here`},
		{`[]`, `byte 0: expected '{', found '['`},
		{`{}`, `it has no "model"`},
		{"{\"a\":\"\xff\"}", `must be UTF-8`},
		{`{"model":{"vocab":{"a":1`, `model: byte 24: expected '}' but the text ends here`},
		{`{"model":{"vocab":{"a":"b"}}}`, `model: byte 23: expected a whole number`},
		{`{"model":{"type":"WordLevel","vocab":{"<unk>":0}}} x`, `there is text after the end`},
		{model(`{"type":"BPE"}`), `model: it has no "vocab"`},
		{model(`{"type":"Klingon","vocab":{}}`), `model: a model of type "Klingon" is not supported`},
		{model(`{"type":"BPE","vocab":{"a":2000000000}}`), `token "a" has id 2000000000, which does not fit a vocabulary of 1 tokens`},
		{model(`{"type":"BPE","vocab":{"a":-1}}`), `token "a" has id -1`},
		{model(`{"type":"BPE","vocab":{"a":99999999999}}`), `at most 31 bits`},
		{model(`{"type":"BPE","vocab":{"a":0},"merges":["a b"]}`), `merge 0, "a" with "b", uses a token that is not in its vocabulary`},
		{model(`{"type":"BPE","vocab":{"a":0},"merges":["ab"]}`), `merge "ab" is not two tokens with one space between`},
		{model(`{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}`), `merge 0 has 1 parts instead of 2`},
		{model(`{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}`), `BPE dropout (0.1) is not supported`},
		{model(`{"type":"Unigram","vocab":{"a":0}}`), `the form of its vocabulary is not that of a "Unigram" model`},
		{model(`{"type":"BPE","vocab":[["a",0.5]]}`), `the form of its vocabulary is not that of a "BPE" model`},
		{model(`{"type":"Unigram","vocab":[["a",0.5]],"unk_id":1}`), `unk_id 1 lies outside`},
		{model(`{"type":"WordPiece","vocab":{"a":0}}`), `its unk_token "[UNK]" is not in its vocabulary`},
		{with("normalizer", `{"type":"Precompiled"}`), `normalizer (Precompiled): this kind of component is not supported`},
		{with("normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]}`), `normalizer.normalizers[1] (Nmt)`},
		{with("normalizer", `{"type":"Sequence"}`), `its Sequence has no list "normalizers"`},
		{with("normalizer", nested), `Sequences are nested more than 16 deep`},
		{with("normalizer", `{"kind":"NFC"}`), `normalizer: it has no "type"`},
		{with("normalizer", `{"type":"Replace","pattern":{},"content":""}`), `normalizer (Replace): its pattern has neither`},
		{with("pre_tokenizer", `{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"}`), `pre_tokenizer (Split): cannot read the regular expression "("`},
		{with("pre_tokenizer", `{"type":"Split","pattern":{"String":"a"},"behavior":"Odd"}`), `unknown behavior "Odd"`},
		{with("pre_tokenizer", `{"type":"UnicodeScripts"}`), `pre_tokenizer (UnicodeScripts)`},
		{with("pre_tokenizer", `{"type":"Metaspace","prepend_scheme":"last"}`), `unknown prepend_scheme "last"`},
		{with("post_processor", `{"type":"Odd"}`), `post_processor (Odd)`},
		{with("post_processor", `{"type":"TemplateProcessing","single":[]}`), `does not hold the text exactly once`},
		{with("post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}]}`), `its special_tokens lack "x"`},
		{with("post_processor", `{"type":"BertProcessing","cls":["a",7],"sep":["b",0]}`), `it adds the id 7, which no token has`},
		{with("decoder", `{"type":"CTC"}`), `decoder (CTC)`},
		{with("added_tokens", `{}`), `added_tokens: `},
	} {
		_, err := Parse([]byte(test.text))
		require.ErrorContains(t, err, test.want, test.text)
	}
}

func TestUnigramNeedsUnknown(t *testing.T) {
	tok := parse(t, `{"model":{"type":"Unigram","vocab":[["a",-1],["b",-2],["ab",-2.5]]}}`)
	require.Equal(t, []int32{2, 0}, encode(t, tok, "aba"))
	_, err := tok.Encode("c", false)
	require.ErrorContains(t, err, "no unk_id")
}
