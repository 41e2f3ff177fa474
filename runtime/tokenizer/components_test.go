package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

// section is a part of a tokenizer.json, as JSON.
type section = json.RawMessage

// tokenizerFile is a tokenizer.json to write.
type tokenizerFile struct {
	Version      string  `json:"version"`
	AddedTokens  section `json:"added_tokens"`
	Normalizer   section `json:"normalizer"`
	PreTokenizer section `json:"pre_tokenizer"`
	Post         section `json:"post_processor"`
	Decoder      section `json:"decoder"`
	Model        any     `json:"model"`
}

func (f tokenizerFile) json(t testing.TB) string {
	t.Helper()
	f.Version = "1.0"
	if f.AddedTokens == nil {
		f.AddedTokens = section("[]")
	}
	data, err := json.Marshal(f)
	require.NoError(t, err)
	return string(data)
}

// spellingModel has a token for every character of the texts in any form, and
// another one for the character at the end of a word: its ids show where the
// words end.
func spellingModel(texts []string) map[string]any {
	vocab := map[string]int{"<unk>": 0}
	add := func(text string) {
		for _, r := range text {
			for _, token := range []string{string(r), string(r) + "</w>"} {
				if _, ok := vocab[token]; !ok {
					vocab[token] = len(vocab)
				}
			}
		}
	}
	for _, text := range texts {
		for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			add(form.String(text))
			add(strings.ToLower(form.String(text)))
		}
		add(text)
	}
	add(string(appendByteLevel(nil, strings.Join(texts, ""))))
	add("#▁ ")
	return map[string]any{"type": "BPE", "unk_token": "<unk>", "end_of_word_suffix": "</w>", "vocab": vocab, "merges": []string{}}
}

func componentTexts() []string {
	return append(append([]string{}, nastyTexts...), randomTexts(3, 150)...)
}

// checkFiles compares with the reference for each file.
func checkFiles(t *testing.T, names []string, files []tokenizerFile, texts []string, ids [][]int32) {
	t.Helper()
	jobs := make([]oracleJob, len(files))
	for i, f := range files {
		jobs[i] = oracleJob{JSON: f.json(t), Texts: texts, IDs: ids}
	}
	for i, answer := range askOracle(t, jobs...) {
		t.Run(names[i], func(t *testing.T) {
			tok, err := Parse([]byte(jobs[i].JSON))
			require.NoError(t, err)
			compare(t, tok, jobs[i], answer)
		})
	}
}

func TestNormalizersLikeReference(t *testing.T) {
	texts := componentTexts()
	model := spellingModel(texts)
	sections := []string{
		`{"type":"NFC"}`, `{"type":"NFD"}`, `{"type":"NFKC"}`, `{"type":"NFKD"}`,
		`{"type":"Lowercase"}`,
		`{"type":"StripAccents"}`,
		`{"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},{"type":"Lowercase"}]}`,
		`{"type":"Strip","strip_left":true,"strip_right":true}`,
		`{"type":"Strip","strip_left":true,"strip_right":false}`,
		`{"type":"Strip","strip_left":false,"strip_right":true}`,
		`{"type":"Prepend","prepend":"▁"}`,
		`{"type":"Replace","pattern":{"String":" "},"content":"▁"}`,
		`{"type":"Replace","pattern":{"Regex":" {2,}|\\d+"},"content":"#"}`,
		`{"type":"ByteLevel"}`,
		`{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true}`,
		`{"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":true,"strip_accents":true,"lowercase":false}`,
		`{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":false,"strip_accents":null,"lowercase":false}`,
		`{"type":"Sequence","normalizers":[{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"}]},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}`,
	}
	var files []tokenizerFile
	for _, s := range sections {
		files = append(files, tokenizerFile{Normalizer: section(s), Model: model})
	}
	checkFiles(t, sections, files, texts, nil)
}

func TestPreTokenizersLikeReference(t *testing.T) {
	texts := componentTexts()
	model := spellingModel(texts)
	sections := []string{
		`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`,
		`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`,
		`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}`,
		`{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}`,
		`{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}`,
		`{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":true}`,
		`{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":false}`,
		`{"type":"Metaspace","replacement":"▁","add_prefix_space":true}`,
		`{"type":"Metaspace","replacement":"▁","add_prefix_space":false,"prepend_scheme":"never"}`,
		`{"type":"Digits","individual_digits":true}`,
		`{"type":"Digits","individual_digits":false}`,
		`{"type":"Punctuation","behavior":"Isolated"}`,
		`{"type":"Punctuation","behavior":"Contiguous"}`,
		`{"type":"Punctuation"}`,
		`{"type":"Whitespace"}`,
		`{"type":"WhitespaceSplit"}`,
		`{"type":"BertPreTokenizer"}`,
		`{"type":"CharDelimiterSplit","delimiter":"a"}`,
		`{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}]}`,
		`{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},{"type":"Digits","individual_digits":true}]}`,
		`{"type":"Sequence","pretokenizers":[{"type":"Punctuation"},{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}]}]}`,
	}
	for _, behavior := range []string{"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"} {
		for _, invert := range []string{"false", "true"} {
			for _, pattern := range []string{`{"String":" "}`, `{"String":"ab"}`, `{"Regex":"\\s+(?!\\S)|\\s|[A-Z]"}`} {
				sections = append(sections, `{"type":"Split","pattern":`+pattern+`,"behavior":"`+behavior+`","invert":`+invert+`}`)
			}
		}
	}
	var files []tokenizerFile
	for _, s := range sections {
		files = append(files, tokenizerFile{PreTokenizer: section(s), Model: model})
	}
	checkFiles(t, sections, files, texts, nil)
}

func TestDecodersLikeReference(t *testing.T) {
	vocab := map[string]int{}
	for _, token := range []string{
		"▁", "▁▁", "▁a", "▁a▁b▁", "b", "c▁", " ", "  ", " x", "y ", "##z", "##", "#", ".", ",", "!", "'", "n't", "'s", "do", "not", "</w>", "d</w>", "e</w>f",
		"Ġ", "Ġhi", "Ċ", "é", "Ã", "©", "ðŁ", "ĺ", "Ģ", "ðŁĺĢ", "你", "x你",
		"<0x41>", "<0xC3>", "<0xA9>", "<0xE4>", "<0xBD>", "<0xA0>", "<0xF0>", "<0xZZ>", "<0x0A>", "\ufffd", "", "<s>",
	} {
		vocab[token] = len(vocab)
	}
	model := map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": "#"}
	replace := `{"type":"Replace","pattern":{"String":"▁"},"content":" "}`
	sections := []string{
		`null`,
		`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`,
		`{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}`,
		`{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}`,
		`{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":true}`,
		`{"type":"WordPiece","prefix":"##","cleanup":true}`,
		`{"type":"WordPiece","prefix":"#","cleanup":false}`,
		`{"type":"BPEDecoder","suffix":"</w>"}`,
		`{"type":"ByteFallback"}`,
		`{"type":"Fuse"}`,
		`{"type":"Strip","content":" ","start":1,"stop":0}`,
		replace,
		`{"type":"Replace","pattern":{"Regex":"[▁b]+"},"content":"-"}`,
		`{"type":"Sequence","decoders":[` + replace + `,{"type":"ByteFallback"},{"type":"Fuse"}]}`,
		`{"type":"Sequence","decoders":[` + replace + `,{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`,
		`{"type":"Sequence","decoders":[` + replace + `,{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":3,"stop":0}]}`,
		`{"type":"Sequence","decoders":[{"type":"Fuse"},` + replace + `]}`,
		`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}]}`,
		`{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true}]}`,
		`{"type":"Sequence","decoders":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},{"type":"Strip","content":" ","start":1,"stop":0},{"type":"Fuse"}]}`,
	}
	tok, err := Parse([]byte(tokenizerFile{Model: model}.json(t)))
	require.NoError(t, err)
	var ids [][]int32
	for id := range int32(len(vocab)) {
		ids = append(ids, []int32{id}, []int32{id, id})
	}
	ids = append(ids, idsFor(t, tok, nil, 600)...)
	var files []tokenizerFile
	for _, s := range sections {
		files = append(files, tokenizerFile{
			Decoder:     section(s),
			Model:       model,
			AddedTokens: section(`[{"id":0,"content":"<s>","special":true,"normalized":false,"lstrip":false,"rstrip":false,"single_word":false}]`),
		})
	}
	checkFiles(t, sections, files, nil, ids)
	for i, f := range files {
		tok, err := Parse([]byte(f.json(t)))
		require.NoError(t, err)
		t.Run("stream "+sections[i], func(t *testing.T) { requireStreamed(t, tok, ids) })
	}
}

func TestPostProcessorsLikeReference(t *testing.T) {
	model := section(`{"type":"WordLevel","vocab":{"<unk>":0,"a":1,"[CLS]":2,"[SEP]":3,"<s>":4},"unk_token":"<unk>"}`)
	template := `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"[SEP]","type_id":0}},{"SpecialToken":{"id":"[SEP]","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":0}}],"special_tokens":{"[CLS]":{"id":"[CLS]","ids":[2],"tokens":["[CLS]"]},"[SEP]":{"id":"[SEP]","ids":[3,4],"tokens":["[SEP]","<s>"]}}}`
	sections := []string{
		`null`,
		template,
		`{"type":"BertProcessing","sep":["[SEP]",3],"cls":["[CLS]",2]}`,
		`{"type":"RobertaProcessing","sep":["[SEP]",3],"cls":["<s>",4],"trim_offsets":true,"add_prefix_space":true}`,
		`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true}`,
		`{"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},` + template + `]}`,
	}
	var files []tokenizerFile
	for _, s := range sections {
		files = append(files, tokenizerFile{Post: section(s), Model: model})
	}
	checkFiles(t, sections, files, []string{"", "a", "b", "a[SEP]"}, nil)
}

func TestAddedTokensLikeReference(t *testing.T) {
	texts := componentTexts()
	tokens := []string{"<l>", "<r>", "<b>", "wörd", "NormAL", "<s>", "<s>x", "x<s", "ab", " sp "}
	for _, text := range randomTexts(4, 300) {
		r := []rune(text)
		var mixed strings.Builder
		for i, c := range r {
			mixed.WriteRune(c)
			if int(c)%3 == 0 {
				mixed.WriteString(tokens[(int(c)+i)%len(tokens)])
			}
		}
		texts = append(texts, mixed.String(), strings.ToLower(mixed.String()))
	}
	model := spellingModel(texts)
	added := section(`[
		{"id":1000000,"content":"<l>","lstrip":true,"rstrip":false,"single_word":false,"normalized":false,"special":true},
		{"id":7,"content":"<r>","lstrip":false,"rstrip":true,"single_word":false,"normalized":false,"special":true},
		{"id":8,"content":"<b>","lstrip":true,"rstrip":true,"single_word":false,"normalized":true,"special":false},
		{"id":9,"content":"wörd","lstrip":false,"rstrip":false,"single_word":true,"normalized":false,"special":false},
		{"id":10,"content":"NormAL","lstrip":false,"rstrip":false,"single_word":false,"normalized":true,"special":false},
		{"id":11,"content":"<s>","lstrip":false,"rstrip":false,"single_word":false,"normalized":false,"special":true},
		{"id":12,"content":"<s>x","lstrip":false,"rstrip":false,"single_word":false,"normalized":false,"special":true},
		{"id":13,"content":"x<s","lstrip":false,"rstrip":false,"single_word":false,"normalized":true,"special":true},
		{"id":14,"content":"b</w>","lstrip":false,"rstrip":false,"single_word":true,"normalized":true,"special":true},
		{"id":15,"content":"ab","lstrip":true,"rstrip":false,"single_word":true,"normalized":true,"special":false},
		{"id":16,"content":"","lstrip":true,"rstrip":false,"single_word":true,"normalized":true,"special":false}]`)
	names := []string{"plain", "lowercase", "metaspace first", "prepend"}
	files := []tokenizerFile{
		{AddedTokens: added, Model: model},
		{AddedTokens: added, Model: model, Normalizer: section(`{"type":"Lowercase"}`)},
		{AddedTokens: added, Model: model, PreTokenizer: section(`{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}`)},
		{AddedTokens: added, Model: model, Normalizer: section(`{"type":"Prepend","prepend":"▁"}`), PreTokenizer: section(`{"type":"Whitespace"}`)},
	}
	checkFiles(t, names, files, texts, nil)
}

func TestModelsLikeReference(t *testing.T) {
	texts := componentTexts()
	words := strings.Fields(prose)
	pieces := map[string]int{"[UNK]": 0, "<unk>": 1}
	var scored []any
	for _, word := range append(words, "un", "##ing", "▁the", "▁t", "▁", "ion", "at") {
		for i := range word {
			for j := i + 1; j <= min(i+4, len(word)); j++ {
				if word[i:j] == strings.ToValidUTF8(word[i:j], "") {
					for _, token := range []string{word[i:j], "##" + word[i:j]} {
						if _, ok := pieces[token]; !ok {
							pieces[token] = len(pieces)
						}
					}
				}
			}
		}
	}
	scored = append(scored, []any{"<unk>", 0.0})
	for token, id := range pieces {
		if token != "<unk>" {
			scored = append(scored, []any{token, -1 - float64(id%37)/3 - float64(id)/100000})
		}
	}
	bytes := append([]any{}, scored...)
	for b := range 256 {
		bytes = append(bytes, []any{strings.ToUpper(string("<0x" + "0123456789abcdef"[b>>4:b>>4+1] + "0123456789abcdef"[b&15:b&15+1] + ">")), -50})
	}
	for i, entry := range bytes {
		pair := append([]any{}, entry.([]any)...)
		pair[0] = strings.Replace(pair[0].(string), "<0X", "<0x", 1)
		bytes[i] = pair
	}
	names := []string{"WordPiece", "WordPiece long words", "WordLevel", "Unigram", "Unigram bytes", "BPE prefix", "BPE fuse", "BPE no fuse", "BPE ignore merges"}
	vocab := map[string]int{"<unk>": 0, "a": 1, "##b": 2, "ab": 3, "b": 4, "aab": 5, "▁": 6, "##▁": 7, "h": 8, "ha": 9, "hah": 10, "haha": 11, "haab": 12, "##a": 13, "aa": 14}
	white := section(`{"type":"Whitespace"}`)
	files := []tokenizerFile{
		{Model: map[string]any{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": pieces}, PreTokenizer: white},
		{Model: map[string]any{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 5, "vocab": pieces}, PreTokenizer: white},
		{Model: map[string]any{"type": "WordLevel", "unk_token": "[UNK]", "vocab": pieces}, PreTokenizer: white},
		{Model: map[string]any{"type": "Unigram", "unk_id": 0, "vocab": scored, "byte_fallback": false}},
		{Model: map[string]any{"type": "Unigram", "unk_id": 0, "vocab": bytes, "byte_fallback": true}},
		{Model: map[string]any{"type": "BPE", "unk_token": "<unk>", "continuing_subword_prefix": "##", "vocab": vocab, "merges": []string{"a ##b", "a ##a"}}, PreTokenizer: white},
		{Model: map[string]any{"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "vocab": vocab, "merges": []string{"h a", "a b", "a ab", "ha h", "hah a", "h aab"}}},
		{Model: map[string]any{"type": "BPE", "unk_token": "<unk>", "fuse_unk": false, "vocab": vocab, "merges": []string{"h a", "a b", "a ab", "ha h", "hah a", "h aab"}}},
		{Model: map[string]any{"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": []string{"h a"}}, PreTokenizer: white},
	}
	texts = append(texts, "aab", "ab ab", "haab", "hahahaha"+strings.Repeat("ha", 40)+"aab", "ahahab", "aaaaaaab", "<unk>", "xyz<unk>zyx")
	checkFiles(t, names, files, texts, nil)
}

// Unicode versions differ between Go and the reference. What Go does not know
// yet is left out, and NFKC too, which the reference has in an older version.
func TestRandomUnicodeLikeReference(t *testing.T) {
	var texts []string
	for _, text := range randomRunes(5, 800) {
		texts = append(texts, strings.Map(func(r rune) rune {
			if unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf) {
				return r
			}
			return -1
		}, text))
	}
	model := spellingModel(texts)
	names := []string{"GPT-2 words", "NFC", "Whitespace", "cl100k"}
	files := []tokenizerFile{
		{Model: model, PreTokenizer: section(`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`)},
		{Model: model, Normalizer: section(`{"type":"NFC"}`)},
		{Model: model, PreTokenizer: section(`{"type":"Whitespace"}`)},
		{Model: model, PreTokenizer: section(`{"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}}`)},
	}
	checkFiles(t, names, files, texts, nil)
}
