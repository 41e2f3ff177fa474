package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

func BenchmarkParse(b *testing.B) {
	folders := testenv.Tokenizers(b)
	for _, name := range sortedKeys(folders) {
		data, err := os.ReadFile(filepath.Join(folders[name], "tokenizer.json"))
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				_, err := Parse(data)
				require.NoError(b, err)
			}
		})
	}
}

// benchmarkText is 1 MB of prose and code that repeats, so that the word cache
// helps as it does in practice, and of random texts, where it does not.
func benchmarkText() string {
	var text strings.Builder
	for text.Len() < 1<<20 {
		for _, t := range longTexts()[:2] {
			text.WriteString(t)
		}
		for _, t := range randomTexts(uint64(text.Len()), 400) {
			text.WriteString(t)
			text.WriteByte('\n')
		}
	}
	return text.String()
}

func BenchmarkEncode(b *testing.B) {
	folders := testenv.Tokenizers(b)
	text := benchmarkText()
	for _, name := range sortedKeys(folders) {
		tok := loadTokenizer(b, folders[name])
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, err := tok.Encode(text, true)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	folders := testenv.Tokenizers(b)
	for _, name := range []string{"llama2", "qwen3"} {
		tok := loadTokenizer(b, folders[name])
		ids, err := tok.Encode(benchmarkText(), true)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			d := tok.NewDecoder(true)
			i := 0
			for b.Loop() {
				d.Add(ids[i%len(ids)])
				i++
			}
		})
	}
}
