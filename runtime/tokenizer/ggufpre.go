package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ggufPre says how a byte-level text is prepared: tokenizer.ggml.pre names it.
type ggufPre struct {
	nfc          bool     // normalize to NFC
	digits       bool     // every digit on its own
	patterns     []string // cut at the matches of these, one after the other
	ignoreMerges bool     // a word that is a token is that token
}

// The expressions of the model families' own tokenizer.json files.
const (
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt4oPattern  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekkenPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var (
	gpt2Pre   = ggufPre{patterns: []string{gpt2Pattern}}
	digitsPre = ggufPre{digits: true, patterns: []string{gpt2Pattern}}
	llama3Pre = ggufPre{patterns: []string{llama3Pattern}}
	// The vocabularies of Llama 3 hold words that no order of merges reaches.
	llama3WholePre = ggufPre{patterns: []string{llama3Pattern}, ignoreMerges: true}
	gpt4oPre       = ggufPre{patterns: []string{gpt4oPattern}, ignoreMerges: true}
)

var ggufPres = map[string]ggufPre{
	"default": {patterns: []string{
		`[\p{P}\$\+<=>\^~\|]+`,
		`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`,
		`\p{N}+`,
		`[0-9][0-9][0-9]`,
	}},
	"gpt-2":  gpt2Pre,
	"phi-2":  gpt2Pre,
	"mpt":    gpt2Pre,
	"olmo":   gpt2Pre,
	"mellum": gpt2Pre,

	"smollm":    digitsPre,
	"starcoder": digitsPre,
	"refact":    digitsPre,
	"command-r": digitsPre,
	"codeshell": digitsPre,
	"exaone":    digitsPre,

	"llama3":    llama3WholePre,
	"llama-v3":  llama3WholePre,
	"llama-bpe": llama3WholePre,
	"falcon3":   llama3WholePre,
	"pixtral":   llama3WholePre,
	"lfm2":      llama3WholePre,
	"dbrx":      llama3Pre,
	"smaug-bpe": llama3Pre,

	"qwen2":            {patterns: []string{qwen2Pattern}, nfc: true},
	"deepseek-r1-qwen": {patterns: []string{qwen2Pattern}},
	"stablelm2":        {patterns: []string{qwen2Pattern}},

	"gpt-4o": gpt4oPre,
	"llama4": gpt4oPre,
	"tekken": {patterns: []string{tekkenPattern}, ignoreMerges: true},

	"deepseek-v3": {patterns: []string{
		`\p{N}{1,3}`,
		`[一-龥぀-ゟ゠-ヿ]+`,
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
	}},
	"deepseek-coder": {patterns: []string{
		`[\r\n]`,
		`\s?\p{L}+`,
		`\s?\p{P}+`,
		`[一-龥ࠀ-一가-퟿]+`,
		`\p{N}`,
	}},
}

func lookupGGUFPre(name string) (ggufPre, error) {
	if name == "" {
		name = "default"
	}
	pre, ok := ggufPres[name]
	if !ok {
		known := slices.Sorted(maps.Keys(ggufPres))
		return ggufPre{}, fmt.Errorf("tokenizer.ggml.pre %q is not supported, only %s", name, strings.Join(known, ", "))
	}
	return pre, nil
}
