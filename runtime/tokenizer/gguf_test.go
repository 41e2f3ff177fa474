package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// smolLM2 reads the vocabulary of the default model's GGUF file.
func smolLM2(t testing.TB) GGUFVocab {
	t.Helper()
	var meta struct {
		Model          string   `json:"model"`
		Pre            string   `json:"pre"`
		Tokens         []string `json:"tokens"`
		Types          []int32  `json:"token_type"`
		Merges         []string `json:"merges"`
		BOS            int32    `json:"bos_token_id"`
		EOS            int32    `json:"eos_token_id"`
		UNK            int32    `json:"unknown_token_id"`
		AddBOS         bool     `json:"add_bos_token"`
		AddSpacePrefix bool     `json:"add_space_prefix"`
	}
	answer := askOracle(t, oracleJob{GGUF: testenv.Model(t)})[0]
	require.NoError(t, json.Unmarshal(answer.metadata, &meta))
	return GGUFVocab{
		Model: meta.Model, Pre: meta.Pre, Tokens: meta.Tokens, Types: meta.Types, Merges: meta.Merges,
		BOS: meta.BOS, EOS: meta.EOS, UNK: meta.UNK, AddBOS: meta.AddBOS, AddSpacePrefix: meta.AddSpacePrefix,
	}
}

// The reference gets a tokenizer.json with the same vocabulary and the stages
// that SmolLM2's own file has.
func TestSmolLM2GGUFLikeReference(t *testing.T) {
	v := smolLM2(t)
	require.Equal(t, "smollm", v.Pre)
	vocab := make(map[string]int, len(v.Tokens))
	var added []map[string]any
	for id, token := range v.Tokens {
		vocab[token] = id
		if v.Types[id] == ggufControl {
			added = append(added, map[string]any{
				"id": id, "content": token, "special": true, "normalized": false, "lstrip": false, "rstrip": false, "single_word": false,
			})
		}
	}
	require.Len(t, added, 17)
	addedJSON, err := json.Marshal(added)
	require.NoError(t, err)
	file := tokenizerFile{
		AddedTokens:  addedJSON,
		PreTokenizer: section(`{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]}`),
		Decoder:      section(`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`),
		Model:        map[string]any{"type": "BPE", "vocab": vocab, "merges": v.Merges},
	}

	tok, err := FromGGUF(v)
	require.NoError(t, err)
	texts := testTexts()
	job := oracleJob{JSON: file.json(t), Texts: texts, IDs: idsFor(t, tok, texts, 500)}
	compare(t, tok, job, askOracle(t, job)[0])
	requireStreamed(t, tok, job.IDs)

	require.Equal(t, 49152, tok.VocabSize())
	require.True(t, tok.IsSpecial(v.EOS))
	require.Empty(t, tok.PrefixIDs())
	ids, err := tok.Encode("<|im_start|>user\nHi<|im_end|>\n", false)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 4093, 198, 26843, 2, 198}, ids)
}

// asGGUF turns a tokenizer.json into what a GGUF file of the same model holds.
func asGGUF(t *testing.T, folder, model, pre string) GGUFVocab {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "tokenizer.json"))
	require.NoError(t, err)
	f, err := readFile(string(data))
	require.NoError(t, err)
	tok, err := Parse(data)
	require.NoError(t, err)
	v := GGUFVocab{Model: model, Pre: pre, BOS: -1, EOS: -1, UNK: -1, Types: make([]int32, tok.VocabSize())}
	for id := range int32(tok.VocabSize()) {
		token, ok := tok.Token(id)
		require.True(t, ok)
		v.Tokens = append(v.Tokens, token)
		v.Types[id] = ggufNormal
		if added := tok.added.byID[id]; added != nil {
			require.False(t, added.Normalized && pre != "deepseek-v3")
			v.Types[id] = ggufUserDefined
			if added.Special {
				v.Types[id] = ggufControl
			}
		} else if _, ok := byteToken(token); ok {
			v.Types[id] = 6
		}
	}
	for _, m := range f.model.merges {
		v.Merges = append(v.Merges, m.left+" "+m.right)
	}
	if prefix := tok.PrefixIDs(); len(prefix) == 1 {
		v.BOS, v.AddBOS = prefix[0], true
	}
	return v
}

func requireSameIDs(t *testing.T, want, got *Tokenizer) {
	t.Helper()
	for _, text := range append(testTexts(), randomRunes(8, 200)...) {
		wantIDs, err := want.Encode(text, true)
		require.NoError(t, err)
		gotIDs, err := got.Encode(text, true)
		require.NoError(t, err)
		require.Equal(t, wantIDs, gotIDs, "ids of %.200q", text)
		require.Equal(t, want.Decode(wantIDs, true), got.Decode(gotIDs, true))
	}
}

func TestGGUFPreLikeTokenizerJSON(t *testing.T) {
	folders := testenv.Tokenizers(t)
	pres := map[string]string{
		"gpt2": "gpt-2", "llama3_1": "llama-bpe", "qwen3": "qwen2", "mistral_nemo": "tekken", "gpt_oss": "gpt-4o", "deepseek_v3": "deepseek-v3",
	}
	done := 0
	for _, name := range sortedKeys(folders) {
		pre, ok := pres[name]
		if !ok {
			continue
		}
		done++
		t.Run(pre, func(t *testing.T) {
			got, err := FromGGUF(asGGUF(t, folders[name], "gpt2", pre))
			require.NoError(t, err)
			requireSameIDs(t, loadTokenizer(t, folders[name]), got)
		})
	}
	require.GreaterOrEqual(t, done, 4)
}

// A tokenizer.json lists the merges by the falling score of what they make.
func TestGGUFSentencePieceLikeTokenizerJSON(t *testing.T) {
	folder := testenv.Tokenizers(t)["llama2"]
	require.NotEmpty(t, folder)
	want := loadTokenizer(t, folder)
	v := asGGUF(t, folder, "llama", "")
	v.Scores = make([]float32, len(v.Tokens))
	for id := range v.Scores {
		v.Scores[id] = -1e6
	}
	for rank, text := range v.Merges {
		m, err := splitMerge(text)
		require.NoError(t, err)
		id, ok := want.TokenID(m.left + m.right)
		require.True(t, ok)
		v.Scores[id] = max(v.Scores[id], -float32(rank))
	}
	v.Merges = nil
	v.UNK = 0
	v.Types[0] = ggufUnknown
	v.AddSpacePrefix = true
	got, err := FromGGUF(v)
	require.NoError(t, err)
	require.True(t, got.IsSpecial(1))
	requireSameIDs(t, want, got)
}

func TestGGUFScores(t *testing.T) {
	v := GGUFVocab{
		Model: "llama", BOS: 1, EOS: 2, UNK: 0, AddBOS: true, AddEOS: true, AddSpacePrefix: true,
		Tokens: []string{"<unk>", "<s>", "</s>", "▁", "a", "b", "c", "ab", "bc", "▁a", "<0xC3>", "<0xA9>"},
		Types:  []int32{2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 6, 6},
		Scores: []float32{0, 0, 0, -9, -9, -9, -9, -2, -1, -3, 0, 0},
	}
	tok, err := FromGGUF(v)
	require.NoError(t, err)
	for text, want := range map[string][]int32{
		"abc":  {1, 9, 8, 2},         // bc first, then ▁a
		"ab":   {1, 3, 7, 2},         // ab before ▁a
		"a a":  {1, 9, 9, 2},         // each with its space
		"é":    {1, 3, 10, 11, 2},    // spelled in bytes
		"éü":   {1, 3, 10, 11, 0, 2}, // a byte of ü is missing: unknown
		"<s>b": {1, 1, 3, 5, 2},      // a text after a special token gets the space, too
	} {
		ids, err := tok.Encode(text, true)
		require.NoError(t, err)
		require.Equal(t, want, ids, "%q", text)
	}
	ids, err := tok.Encode("<0xC3>", false)
	require.NoError(t, err)
	require.Equal(t, []int32{3, 0}, ids, "a byte token is never found by its name")
	require.Equal(t, "abc é", tok.Decode([]int32{1, 9, 8, 3, 10, 11, 2}, true))
	require.Equal(t, []int32{1}, tok.PrefixIDs())
	require.Equal(t, []int32{2}, tok.SuffixIDs())
}

func TestGGUFErrors(t *testing.T) {
	good := func() GGUFVocab {
		return GGUFVocab{Model: "gpt2", Pre: "smollm", Tokens: []string{"a", "b", "ab"}, Merges: []string{"a b"}, BOS: -1, EOS: -1, UNK: -1}
	}
	_, err := FromGGUF(good())
	require.NoError(t, err)
	for want, spoil := range map[string]func(*GGUFVocab){
		`tokenizer.ggml.pre "klingon" is not supported, only codeshell, `: func(v *GGUFVocab) { v.Pre = "klingon" },
		`tokenizer.ggml.model "rwkv" is not supported`:                    func(v *GGUFVocab) { v.Model = "rwkv" },
		`tokenizer.ggml.tokens is missing`:                                func(v *GGUFVocab) { v.Tokens = nil },
		`tokenizer.ggml.token_type has 1 entries for 3 tokens`:            func(v *GGUFVocab) { v.Types = []int32{1} },
		`tokenizer.ggml.scores has 2 entries for 3 tokens`:                func(v *GGUFVocab) { v.Scores = []float32{1, 2} },
		`tokenizer.ggml.scores is missing`:                                func(v *GGUFVocab) { v.Model = "llama" },
		`special token id 3 lies outside the 3 tokens`:                    func(v *GGUFVocab) { v.EOS = 3 },
		`token 1 is not UTF-8`:                                            func(v *GGUFVocab) { v.Tokens[1] = "\xff" },
		`merge "ab" is not two tokens`:                                    func(v *GGUFVocab) { v.Merges[0] = "ab" },
		`merge 0, "b" with "a", uses a token that is not`:                 func(v *GGUFVocab) { v.Merges[0] = "b a" },
	} {
		v := good()
		spoil(&v)
		_, err := FromGGUF(v)
		require.ErrorContains(t, err, want)
	}
}
