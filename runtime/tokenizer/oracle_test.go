package tokenizer

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// oracleJob and oracleAnswer are described in testdata/oracle.py.
type oracleJob struct {
	File  string    `json:"file,omitempty"`
	JSON  string    `json:"json,omitempty"`
	GGUF  string    `json:"gguf,omitempty"`
	Texts []string  `json:"texts,omitempty"`
	IDs   [][]int32 `json:"ids,omitempty"`
}

type oracleAnswer struct {
	Error    string
	Plain    [][]int32
	Special  [][]int32
	Decoded  []string
	Skipped  []string
	metadata json.RawMessage
}

func (a *oracleAnswer) UnmarshalJSON(data []byte) error {
	type plain oracleAnswer
	a.metadata = append(a.metadata, data...)
	return json.Unmarshal(data, (*plain)(a))
}

func askOracle(t testing.TB, jobs ...oracleJob) []oracleAnswer {
	t.Helper()
	input, err := json.Marshal(jobs)
	require.NoError(t, err)
	cmd := exec.Command(testenv.Python(t), filepath.Join("testdata", "oracle.py"))
	cmd.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "oracle.py: %s", stderr.String())
	var answers []oracleAnswer
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &answers))
	require.Len(t, answers, len(jobs))
	return answers
}

// compare requires that tok agrees with the oracle's answer to job.
func compare(t *testing.T, tok *Tokenizer, job oracleJob, want oracleAnswer) {
	t.Helper()
	require.Empty(t, want.Error)
	for i, text := range job.Texts {
		got, err := tok.Encode(text, false)
		require.NoError(t, err, "text %.200q", text)
		require.Equal(t, want.Plain[i], got, "ids of %.200q", text)
		got, err = tok.Encode(text, true)
		require.NoError(t, err)
		require.Equal(t, want.Special[i], got, "ids with special tokens of %.200q", text)
	}
	for i, ids := range job.IDs {
		require.Equal(t, want.Decoded[i], tok.Decode(ids, false), "text of %.200v", ids)
		require.Equal(t, want.Skipped[i], tok.Decode(ids, true), "text without special tokens of %.200v", ids)
	}
}

// idsFor makes id sequences to decode: those of texts and random ones.
func idsFor(t *testing.T, tok *Tokenizer, texts []string, random int) [][]int32 {
	t.Helper()
	var out [][]int32
	for _, text := range texts {
		ids, err := tok.Encode(text, true)
		require.NoError(t, err)
		out = append(out, ids)
	}
	r := rand.New(rand.NewPCG(7, 7))
	for range random {
		ids := make([]int32, r.IntN(12))
		for i := range ids {
			ids[i] = int32(r.IntN(tok.VocabSize() + 2))
			if r.IntN(2) == 0 {
				ids[i] = int32(r.IntN(min(600, tok.VocabSize()))) // bytes and special tokens
			}
		}
		out = append(out, ids)
	}
	return out
}

func loadTokenizer(t testing.TB, folder string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "tokenizer.json"))
	require.NoError(t, err)
	tok, err := Parse(data)
	require.NoError(t, err)
	return tok
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func TestRealTokenizers(t *testing.T) {
	folders := testenv.Tokenizers(t)
	require.GreaterOrEqual(t, len(folders), 6)
	texts := testTexts()
	for _, name := range sortedKeys(folders) {
		t.Run(name, func(t *testing.T) {
			tok := loadTokenizer(t, folders[name])
			job := oracleJob{
				File:  filepath.Join(folders[name], "tokenizer.json"),
				Texts: texts,
				IDs:   idsFor(t, tok, texts, 500),
			}
			compare(t, tok, job, askOracle(t, job)[0])
		})
	}
}
