package tokenizer

import (
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// nastyTexts are texts on which tokenizers tend to disagree.
var nastyTexts = []string{
	"", " ", "  ", "   ", "\n", "\r\n", " \n", "\n ", "\t\t", "\u00a0", "\u3000x", "a", " a", "a ", " a ", "  a  b  ",
	"Hello, world!", "Hello  world", "I'm don't WE'LL they'Ve it's 'tis '", "'ſ 'ſx I'ſ", "K's \u212as",
	"1", "12", "123", "1234", "12345678901234567890", "3.14159e-10", "1,000,000.00", "٠١٢٣٤٥", "½⅓Ⅷ①", "x1y22z333",
	"foo_bar_baz", "fooBarBaz", "FOOBAR", "FooBAR123baz", "snake_case CamelCase kebab-case", "__init__", "--flag=value",
	"func main() {\n\tfmt.Println(\"hi\")\n}\n", "if (a<b && c>=d) { return -1; }\n\n\n", "    indented\n        more\n", "a\n\n\nb\r\n\r\nc",
	"https://example.com/a/b?c=d&e=f#g", "user@example.com", "C:\\Users\\x\\y", "/usr/bin/env python3", "$HOME ${x} `cmd`",
	"Crème brûlée à la façon de l'île", "naïve café", "e\u0301\u0302 cafe\u0301", "Ångström A\u030a", "ﬁ ﬂ ﬀ", "Straße STRASSE ß ẞ", "İstanbul ıI iİ",
	"你好，世界！", "今天天气很好。我们去公园吧。", "こんにちは世界", "カタカナとひらがな", "한국어 텍스트입니다", "\u1112\u1161\u11ab\u1100\u116e\u11a8",
	"Привет, мир!", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "გამარჯობა", "ሰላም", "𐍈𐌰𐌹", "𝒳𝓎𝓏 𝟙𝟚𝟛",
	"😀", "😀😃😄 😁", "👨‍👩‍👧‍👦", "👍🏽", "🇫🇷🇩🇪", "❤️", "☕️ time", "a😀b", "™®©", "→←↑↓", "∑∏∫√∞", "…—–‘’“”",
	"\u200b\u200c\u200d\ufeff", "a\u200bb", "\u202eabc", "x\u0000y", "\u0001\u0002\u001f", "\u007f\u0080\u009f", "\ufffd", "\ufffdx\ufffd", "\U0010ffff", "\ue000", "\u0378",
	"▁", "▁a", "a▁b", "▁▁", "a ▁ b", "_▁_", "Ġ", "ĠĠ", "<0x41>", "<0x0A>", "</w>", "##ing", "<unk>", "<s>", "</s>", "<|endoftext|>",
	"<s>hello</s>", " <s> hello </s> ", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start", "<|begin_of_text|>a<|eot_id|>", "<bos><start_of_turn>user\nx<end_of_turn>",
	"<｜begin▁of▁sentence｜>x<｜User｜>y", "[INST] hi [/INST]", "<|start|>assistant<|channel|>final<|message|>", "<think>\nx\n</think>", "<unused0><unused1>",
	"a" + strings.Repeat("\u0301", 29), "a" + strings.Repeat("\u0301", 31), "e" + strings.Repeat("\u0323\u0301", 40) + "x",
	"\u0344\u0958\u0f73\u2126\u212b", "q\u0307\u0323", "\u0c46\u0c56", "\u0061\u0315\u0300\u05ae\u0062",
	strings.Repeat(" ", 100), strings.Repeat("\n", 50), strings.Repeat("\t", 33) + "x", strings.Repeat("a", 300), strings.Repeat("ab", 200), strings.Repeat("=", 120),
	strings.Repeat("-", 49), strings.Repeat("0", 99), strings.Repeat("你", 100), strings.Repeat("😀", 70), strings.Repeat("é", 60), strings.Repeat("x ", 60), strings.Repeat(" \n", 30),
	strings.Repeat("ha", 24) + "!", strings.Repeat("Donaudampfschifffahrt", 12), strings.Repeat("\u0e01\u0e34", 40),
}

// alphabets are what random texts are made of.
var alphabets = []func(*rand.Rand) string{
	func(r *rand.Rand) string { return string(rune(' ' + r.IntN(95))) },
	func(r *rand.Rand) string { return string(rune('a' + r.IntN(26))) },
	func(r *rand.Rand) string { return string(rune('A' + r.IntN(26))) },
	func(r *rand.Rand) string { return string(rune('0' + r.IntN(10))) },
	func(r *rand.Rand) string {
		return pick(r, []string{" ", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000"})
	},
	func(r *rand.Rand) string { return string(rune(0xA1 + r.IntN(0x17F-0xA1))) },
	func(r *rand.Rand) string { return string(rune(0x300 + r.IntN(0x70))) },
	func(r *rand.Rand) string { return string(rune(0x370 + r.IntN(0x400))) },
	func(r *rand.Rand) string { return string(rune(0x4E00 + r.IntN(0x5000))) },
	func(r *rand.Rand) string { return string(rune(0x3041 + r.IntN(0xB0))) },
	func(r *rand.Rand) string { return string(rune(0xAC00 + r.IntN(0x2BA4))) },
	func(r *rand.Rand) string { return string(rune(0x1F300 + r.IntN(0x300))) },
	func(r *rand.Rand) string { return string(rune(0x2000 + r.IntN(0x300))) },
	func(r *rand.Rand) string {
		return pick(r, []string{"'s", "'T", "'ll", "'RE", "▁", "<", "|", ">", "_", "İ", "ſ", "İ", "ß", "\u200d", "\ufe0f"})
	},
	func(r *rand.Rand) string { return pick(r, strings.Fields(prose)) + " " },
	func(r *rand.Rand) string {
		return pick(r, []string{"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<bos>", "<|eot_id|>", "<｜User｜>", "[INST]", "<|endoftext|>", "<tool_call>"})
	},
}

const prose = `The quick brown fox jumps over the lazy dog while reading a paper about
attention and transformers; it's a well-known fact that tokenization isn't trivial, and
that naïve implementations disagree on punctuation (like this), "quotes", and numbers: 3.14, 1,024.`

func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

// randomTexts makes n texts, always the same ones for a seed.
func randomTexts(seed uint64, n int) []string {
	r := rand.New(rand.NewPCG(seed, 1))
	texts := make([]string, n)
	for i := range texts {
		var text strings.Builder
		parts := 1 + r.IntN(12)
		for range parts {
			alphabet := alphabets[r.IntN(len(alphabets))]
			for range 1 + r.IntN(6) {
				text.WriteString(alphabet(r))
			}
		}
		texts[i] = text.String()
	}
	return texts
}

// randomRunes makes n texts from all of Unicode, assigned or not.
func randomRunes(seed uint64, n int) []string {
	r := rand.New(rand.NewPCG(seed, 2))
	texts := make([]string, n)
	for i := range texts {
		var text strings.Builder
		for range 1 + r.IntN(20) {
			limits := []int{0x80, 0x800, 0x10000, 0x20000, 0x110000}
			c := rune(r.IntN(limits[r.IntN(len(limits))]))
			if utf8.ValidRune(c) {
				text.WriteRune(c)
			}
		}
		texts[i] = text.String()
	}
	return texts
}

// longTexts are texts of some 20 kB.
func longTexts() []string {
	mixed := strings.Join(nastyTexts, " ")
	return []string{
		strings.Repeat(prose+"\n\n", 80),
		strings.Repeat("func (s *Server) Handle(w http.ResponseWriter, r *http.Request) error {\n\treturn s.next(w, r) // TODO: 42\n}\n\n", 150),
		mixed + mixed,
		strings.Repeat("今天天气很好。我们去公园吧。", 500),
		strings.Repeat("nospacesatall", 1500),
	}
}

// testTexts is all of the above.
func testTexts() []string {
	texts := append([]string{}, nastyTexts...)
	texts = append(texts, randomTexts(1, 600)...)
	return append(texts, longTexts()...)
}
