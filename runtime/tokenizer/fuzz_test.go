package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParse looks for files that make Parse, or what it returns, panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte(byteLevelJSON(f)))
	f.Add([]byte(`{"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1.5]]},"normalizer":{"type":"NFKC"},"decoder":{"type":"Metaspace"}}`))
	f.Add([]byte(`{"model":{"type":"WordPiece","vocab":{"[UNK]":0,"a":1,"##b":2}},"pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece"}}`))
	f.Add([]byte(`{"added_tokens":[{"content":"x","lstrip":true,"rstrip":true,"normalized":true}],"model":{"type":"BPE","unk_token":"u","end_of_word_suffix":"</w>","continuing_subword_prefix":"#","vocab":{"u":0,"a</w>":1,"#":3},"merges":["# a</w>"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data)
		if err != nil || strings.Contains(string(data), "Regex") {
			return // an expression may take its time
		}
		ids, err := tok.Encode("Hello, wörld! ab 12 \u0301 <|end|> x", true)
		if err != nil {
			return
		}
		for _, id := range ids {
			if _, ok := tok.Token(id); !ok {
				t.Fatalf("id %d has no token", id)
			}
		}
		if text := tok.Decode(ids, false); !utf8.ValidString(text) {
			t.Fatalf("decoded text %q is not UTF-8", text)
		}
	})
}

// FuzzRoundTrip requires that a byte-level tokenizer gives back every text,
// at once and in a stream.
func FuzzRoundTrip(f *testing.F) {
	tok := parse(f, byteLevelJSON(f))
	for _, text := range nastyTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := tok.Encode(text, false)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ToValidUTF8(text, "\uFFFD")
		if got := tok.Decode(ids, false); got != want {
			t.Fatalf("%q came back as %q", want, got)
		}
		var streamed strings.Builder
		d := tok.NewDecoder(false)
		for _, id := range ids {
			piece := d.Add(id)
			if !utf8.ValidString(piece) {
				t.Fatalf("piece %q is not UTF-8", piece)
			}
			streamed.WriteString(piece)
		}
		streamed.WriteString(d.Flush())
		if streamed.String() != want {
			t.Fatalf("%q was streamed as %q", want, streamed.String())
		}
	})
}
