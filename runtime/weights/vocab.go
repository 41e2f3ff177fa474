package weights

import (
	"fmt"
	"reflect"
)

// GGUF is what only a GGUF file has: its metadata.
type GGUF struct {
	Version int // 2 or 3

	// Meta holds all metadata by key. Values are numbers of the Go type that
	// the file names (uint8 to float64), bool, string, or slices of these.
	Meta map[string]any

	Vocab Vocab
}

// Vocab is the tokenizer of a GGUF file.
type Vocab struct {
	Model string // kind of tokenizer: "gpt2" is byte-level BPE, "llama" SentencePiece
	Pre   string // name of the pre-tokenizer, such as "smollm"

	Tokens     []string  // by token id
	TokenTypes []int32   // by token id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; nil if not given
	Scores     []float32 // by token id, nil if not given
	Merges     []string  // pairs separated by a space, best first

	// Token ids, -1 where the file names none. EOT and EOM end a turn and a
	// message, as EOS ends a text.
	BOS, EOS, UNK, PAD, EOT, EOM int

	// AddBOS and AddEOS say whether a prompt starts with BOS and ends with EOS.
	// Where the file does not say, AddBOS is true for SentencePiece and for
	// the llama 3 pre-tokenizer, as these models were trained.
	AddBOS, AddEOS bool
	AddSpacePrefix bool // whether SentencePiece puts a space before the text

	ChatTemplate string // Jinja source, empty if the file has none
}

// vocab reads the tokenizer's metadata.
func (h *ggufHeader) vocab() (Vocab, error) {
	m := metaReader{path: h.path, meta: h.meta}
	const p = "tokenizer.ggml."
	v := Vocab{
		Model:        metaOr(&m, p+"model", ""),
		Pre:          metaOr(&m, p+"pre", ""),
		Tokens:       metaOr[[]string](&m, p+"tokens", nil),
		TokenTypes:   metaOr[[]int32](&m, p+"token_type", nil),
		Scores:       metaOr[[]float32](&m, p+"scores", nil),
		Merges:       metaOr[[]string](&m, p+"merges", nil),
		ChatTemplate: metaOr(&m, "tokenizer.chat_template", ""),
	}
	sentencePiece := v.Model == "llama"
	llama3 := v.Pre == "llama-bpe" || v.Pre == "llama3" || v.Pre == "llama-v3"
	v.AddBOS = metaOr(&m, p+"add_bos_token", sentencePiece || llama3)
	v.AddEOS = metaOr(&m, p+"add_eos_token", false)
	v.AddSpacePrefix = metaOr(&m, p+"add_space_prefix", sentencePiece)
	if m.err != nil {
		return v, m.err
	}

	n := len(v.Tokens)
	if v.TokenTypes != nil && len(v.TokenTypes) != n || v.Scores != nil && len(v.Scores) != n {
		return v, damaged(h.path, "it has %d tokens, %d token types and %d scores", n, len(v.TokenTypes), len(v.Scores))
	}
	ids := []struct {
		key string
		to  *int
	}{
		{"bos_token_id", &v.BOS}, {"eos_token_id", &v.EOS}, {"unknown_token_id", &v.UNK},
		{"padding_token_id", &v.PAD}, {"eot_token_id", &v.EOT}, {"eom_token_id", &v.EOM},
	}
	for _, id := range ids {
		*id.to = int(m.integer(p+id.key, -1))
		if m.err == nil && n > 0 && *id.to >= n {
			return v, damaged(h.path, "%s is %d, and there are %d tokens", p+id.key, *id.to, n)
		}
	}
	return v, m.err
}

// metaReader looks up metadata and keeps the first error.
type metaReader struct {
	path string
	meta map[string]any
	err  error
}

func (m *metaReader) fail(key string, v any, want string) {
	if m.err == nil {
		m.err = damaged(m.path, "the metadata key %s is %s, and %s was expected", key, brief(v), want)
	}
}

// unread keeps the error for a value that is right and that mlxcel cannot
// honour.
func (m *metaReader) unread(key string, v any, want string) {
	if m.err == nil {
		m.err = fmt.Errorf("%s: the metadata key %s is %s, and mlxcel reads GGUF files where it is %s: take the MLX version of the model", m.path, key, brief(v), want)
	}
}

// brief is v for an error message.
func brief(v any) string {
	switch reflect.TypeOf(v).Kind() {
	case reflect.Slice:
		return fmt.Sprintf("%T", v)
	case reflect.String:
		return fmt.Sprintf("%.40q", v)
	}
	return fmt.Sprint(v)
}

// metaOr returns the value of a key, or other if there is none.
func metaOr[T any](m *metaReader, key string, other T) T {
	v, ok := m.meta[key]
	if !ok {
		return other
	}
	t, ok := v.(T)
	if !ok {
		m.fail(key, v, fmt.Sprintf("a value of type %T", other))
		return other
	}
	return t
}

// maxMetaInt bounds the counts and ids in metadata.
const maxMetaInt = 1<<31 - 1

// integer returns the value of a key that holds an integer from 0 on, or other
// if there is none. An array of equal integers, one a layer, counts as one.
func (m *metaReader) integer(key string, other int64) int64 {
	v, ok := m.meta[key]
	if !ok {
		return other
	}
	var n int64
	switch v := v.(type) {
	case uint8:
		n = int64(v)
	case int8:
		n = int64(v)
	case uint16:
		n = int64(v)
	case int16:
		n = int64(v)
	case uint32:
		n = int64(v)
	case int32:
		n = int64(v)
	case int64:
		n = v
	case uint64:
		n = int64(min(v, maxMetaInt+1))
	case []uint32:
		n = allEqual(v)
	case []int32:
		n = allEqual(v)
	default:
		n = -1
	}
	switch {
	case n == layersDiffer:
		m.unread(key, v, "the same for all layers")
		return other
	case n < 0 || n > maxMetaInt:
		m.fail(key, v, "an integer from 0 to 2147483647")
		return other
	}
	return n
}

// layersDiffer is what allEqual returns for elements that differ.
const layersDiffer = -1 << 62

// allEqual returns the value that all elements have, -1 for no elements.
func allEqual[T uint32 | int32](list []T) int64 {
	for _, v := range list {
		if v != list[0] {
			return layersDiffer
		}
	}
	if len(list) == 0 {
		return -1
	}
	return int64(list[0])
}

// positive returns the value of a key that holds an integer above 0.
func (m *metaReader) positive(key string) int64 {
	v, ok := m.meta[key]
	if !ok && m.err == nil {
		m.err = damaged(m.path, "it lacks the metadata key %s", key)
	}
	n := m.integer(key, 1)
	if n == 0 {
		m.fail(key, v, "a positive integer")
	}
	return n
}
