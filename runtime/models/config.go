// Package models records what the supported model families compute. A family is one small file over shared blocks
// (block.go); [Open] picks it by the model_type of config.json. What is computed, defaults of left-out keys included,
// follows mlx-lm 0.32.
package models

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"mlxcel/bindings"
	"mlxcel/runtime/program"
)

// Config holds the keys of config.json that the families read. Pointers and zero values mark keys that were left out.
type Config struct {
	ModelType string `json:"model_type"`

	Hidden       int     `json:"hidden_size"`
	Layers       int     `json:"num_hidden_layers"`
	Intermediate int     `json:"intermediate_size"`
	Heads        int     `json:"num_attention_heads"`
	KVHeads      int     `json:"num_key_value_heads"`
	HeadDim      int     `json:"head_dim"`
	Vocabulary   int     `json:"vocab_size"`
	NormEps      float64 `json:"rms_norm_eps"`

	MaxPositions    int      `json:"max_position_embeddings"`
	RopeTheta       float64  `json:"rope_theta"`
	RopeTraditional bool     `json:"rope_traditional"`
	RopeScaling     *Scaling `json:"rope_scaling"`
	RopeParameters  *Scaling `json:"rope_parameters"` // where transformers 5 keeps theta and scaling

	TieEmbeddings *bool `json:"tie_word_embeddings"`
	AttentionBias bool  `json:"attention_bias"`
	MLPBias       bool  `json:"mlp_bias"`

	LayerTypes    []string `json:"layer_types"`
	SlidingWindow int      `json:"sliding_window"`

	Experts             int   `json:"num_experts"`
	ExpertsPerToken     int   `json:"num_experts_per_tok"`
	ExpertIntermediate  int   `json:"moe_intermediate_size"`
	SparseStep          int   `json:"decoder_sparse_step"`
	DenseLayers         []int `json:"mlp_only_layers"`
	NormalizeExpertProb bool  `json:"norm_topk_prob"`

	EOS TokenIDs `json:"eos_token_id"`
	BOS TokenIDs `json:"bos_token_id"`

	quantization map[string]json.RawMessage
	queryBias    bool // q, k and v have biases whatever AttentionBias says
}

// TokenIDs is a token id or a list of them, as both occur.
type TokenIDs []int32

// UnmarshalJSON reads a number, a list of numbers, or null.
func (ids *TokenIDs) UnmarshalJSON(text []byte) error {
	var one *int32
	if err := json.Unmarshal(text, &one); err == nil {
		*ids = nil
		if one != nil {
			*ids = TokenIDs{*one}
		}
		return nil
	}
	return json.Unmarshal(text, (*[]int32)(ids))
}

// ParseConfig decodes config.json and refuses what cannot be a model.
func ParseConfig(text []byte) (*Config, error) {
	var c Config
	if err := json.Unmarshal(text, &c); err != nil {
		var field *json.UnmarshalTypeError
		if errors.As(err, &field) {
			return nil, fmt.Errorf("config.json: %q is %s, want %s", field.Field,
				cmp.Or(jsonKinds[field.Value], strings.TrimPrefix(field.Value, "number ")), kindOf(field.Type))
		}
		return nil, fmt.Errorf("config.json: %w", err)
	}
	var quantization struct {
		Q map[string]json.RawMessage `json:"quantization"`
		C map[string]json.RawMessage `json:"quantization_config"`
	}
	if err := json.Unmarshal(text, &quantization); err != nil {
		return nil, errors.New(`config.json: "quantization" is not an object`)
	}
	c.quantization = quantization.Q
	if c.quantization == nil {
		if method, ok := quantization.C["quant_method"]; ok {
			return nil, fmt.Errorf("config.json: quantization method %s is not MLX's: take an MLX version of the model", method)
		}
		c.quantization = quantization.C
	}
	if c.RopeParameters != nil {
		if c.RopeTheta == 0 {
			c.RopeTheta = c.RopeParameters.Theta
		}
		if c.RopeScaling == nil {
			c.RopeScaling = c.RopeParameters
		}
	}
	return &c, c.check()
}

// jsonKinds are the kinds of values as encoding/json calls them.
var jsonKinds = map[string]string{
	"string": "a text", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object",
}

// kindOf says what a Go type wants of JSON.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int32:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// check refuses numbers that are missing or absurd; the limits are far above any model.
func (c *Config) check() error {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	for _, f := range []struct {
		key        string
		value, max int
		optional   bool
	}{
		{"hidden_size", c.Hidden, 1 << 20, false},
		{"num_hidden_layers", c.Layers, 1 << 12, false},
		{"intermediate_size", c.Intermediate, 1 << 22, false},
		{"num_attention_heads", c.Heads, 1 << 14, false},
		{"num_key_value_heads", c.KVHeads, 1 << 14, false},
		{"head_dim", c.HeadDim, 1 << 16, true},
		{"vocab_size", c.Vocabulary, 1 << 26, false},
		{"max_position_embeddings", c.MaxPositions, 1 << 30, true},
		{"sliding_window", c.SlidingWindow, 1 << 30, true},
		{"num_experts", c.Experts, 1 << 16, true},
		{"num_experts_per_tok", c.ExpertsPerToken, 1 << 16, true},
		{"moe_intermediate_size", c.ExpertIntermediate, 1 << 22, true},
		{"decoder_sparse_step", c.SparseStep, 1 << 12, true},
	} {
		switch {
		case f.value == 0 && !f.optional:
			return fmt.Errorf("config.json: %q is 0 or missing", f.key)
		case f.value < 0 || f.value > f.max:
			return fmt.Errorf("config.json: %q is %d, want 1 to %d", f.key, f.value, f.max)
		}
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("config.json: %d attention heads cannot share %d key/value heads", c.Heads, c.KVHeads)
	}
	if c.NormEps <= 0 || c.NormEps > 1 {
		return fmt.Errorf("config.json: %q is %g, want more than 0 and at most 1", "rms_norm_eps", c.NormEps)
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	return nil
}

// checkLayers checks the kinds of attention; families without them have dropped them before.
func (c *Config) checkLayers() error {
	if c.LayerTypes != nil && len(c.LayerTypes) != c.Layers {
		return fmt.Errorf("config.json: %q has %d entries for %d layers", "layer_types", len(c.LayerTypes), c.Layers)
	}
	for _, t := range c.LayerTypes {
		if !slices.Contains([]string{"full_attention", "sliding_attention"}, t) {
			return fmt.Errorf("config.json: layer type %q is not supported", t)
		}
		if t == "sliding_attention" && c.SlidingWindow == 0 {
			return errors.New(`config.json: "layer_types" has sliding layers and "sliding_window" is missing`)
		}
	}
	return nil
}

// window is the sliding window of a layer, 0 for full attention.
func (c *Config) window(layer int) int {
	if c.LayerTypes != nil && c.LayerTypes[layer] == "sliding_attention" {
		return c.SlidingWindow
	}
	return 0
}

// tied reports whether the output head is the embedding; mlx-lm takes that for granted where the key is left out.
func (c *Config) tied() bool { return c.TieEmbeddings == nil || *c.TieEmbeddings }

var quantModes = map[string]program.Quant{
	"affine": {Mode: bindings.QuantAffine, Bits: 4, Group: 64},
	"mxfp4":  {Mode: bindings.QuantMXFP4, Bits: 4, Group: 32},
	"mxfp8":  {Mode: bindings.QuantMXFP8, Bits: 8, Group: 32},
	"nvfp4":  {Mode: bindings.QuantNVFP4, Bits: 4, Group: 16},
}

// quant decodes {"mode", "bits", "group_size"}; what is left out has the default of its mode.
func quant(text json.RawMessage) (program.Quant, error) {
	f := struct {
		Mode  string `json:"mode"`
		Bits  int    `json:"bits"`
		Group int    `json:"group_size"`
	}{Mode: "affine"}
	if err := json.Unmarshal(text, &f); err != nil {
		return program.Quant{}, err
	}
	q, ok := quantModes[f.Mode]
	if !ok {
		return q, fmt.Errorf("mode %q is not known", f.Mode)
	}
	if f.Bits != 0 {
		q.Bits = f.Bits
	}
	if f.Group != 0 {
		q.Group = f.Group
	}
	return q, nil
}

// moduleQuants decodes the entries of "quantization" that name a module.
func (c *Config) moduleQuants() (map[string]program.Quant, error) {
	quants := map[string]program.Quant{}
	for module, text := range c.quantization {
		var err error
		switch {
		case text[0] == '{':
			quants[module], err = quant(text)
		case string(text) == "true":
			whole, _ := json.Marshal(c.quantization)
			quants[module], err = quant(whole)
		}
		if err != nil {
			return nil, fmt.Errorf("config.json: quantization of %q: %w", module, err)
		}
	}
	return quants, nil
}
