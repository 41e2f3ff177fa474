package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// requireStreamed requires that the pieces of a stream are whole characters
// and together what Decode gives.
func requireStreamed(t *testing.T, tok *Tokenizer, sequences [][]int32) {
	t.Helper()
	for _, skip := range []bool{false, true} {
		d := tok.NewDecoder(skip) // used again and again, as Flush allows
		for _, ids := range sequences {
			var all strings.Builder
			for _, id := range ids {
				piece := d.Add(id)
				require.True(t, utf8.ValidString(piece), "piece %q of %v", piece, ids)
				all.WriteString(piece)
			}
			rest := d.Flush()
			require.True(t, utf8.ValidString(rest))
			all.WriteString(rest)
			require.Equal(t, tok.Decode(ids, skip), all.String(), "ids %v", ids)
		}
	}
}

func TestStreamEqualsDecode(t *testing.T) {
	folders := testenv.Tokenizers(t)
	texts := append(append([]string{}, nastyTexts...), randomTexts(9, 200)...)
	for _, name := range sortedKeys(folders) {
		t.Run(name, func(t *testing.T) {
			tok := loadTokenizer(t, folders[name])
			requireStreamed(t, tok, idsFor(t, tok, texts, 1000))
		})
	}
}
