package weights

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mlxcel/bindings"
)

// family says how the files of one GGUF architecture become a model of a
// Hugging Face model type.
type family struct {
	modelType string

	// interleaved is set where the converter to GGUF has interleaved the two
	// halves of each head in the rows of the q and k projections.
	interleaved bool

	headNorms bool // q and k have norms
	experts   bool // the MLPs are mixtures of experts
}

var families = map[string]family{
	"llama":    {modelType: "llama", interleaved: true},
	"qwen2":    {modelType: "qwen2"},
	"qwen3":    {modelType: "qwen3", headNorms: true},
	"qwen3moe": {modelType: "qwen3_moe", headNorms: true, experts: true},
}

// Names of modules in a GGUF file and in a Hugging Face model.
var (
	topModules = map[string]string{
		"token_embd":  "model.embed_tokens",
		"output_norm": "model.norm",
		"output":      "lm_head",
	}
	layerModules = map[string]string{
		"attn_norm":   "input_layernorm",
		"attn_q":      "self_attn.q_proj",
		"attn_k":      "self_attn.k_proj",
		"attn_v":      "self_attn.v_proj",
		"attn_output": "self_attn.o_proj",
		"ffn_norm":    "post_attention_layernorm",
		"ffn_gate":    "mlp.gate_proj",
		"ffn_up":      "mlp.up_proj",
		"ffn_down":    "mlp.down_proj",
	}
	headNormModules = map[string]string{
		"attn_q_norm": "self_attn.q_norm",
		"attn_k_norm": "self_attn.k_norm",
	}
	expertModules = map[string]string{
		"ffn_gate_inp":  "mlp.gate",
		"ffn_gate_exps": "mlp.switch_mlp.gate_proj",
		"ffn_up_exps":   "mlp.switch_mlp.up_proj",
		"ffn_down_exps": "mlp.switch_mlp.down_proj",
	}
)

// freqFactorsName is the tensor of RoPE divisors, which becomes a part of the
// config.
const freqFactorsName = "rope_freqs.weight"

// rename splits the name of a GGUF tensor and returns the Hugging Face module
// and "weight" or "bias".
func (f family) rename(name string) (module, param string, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", "", false
	}
	module, param = name[:dot], name[dot+1:]
	if param != "weight" && param != "bias" {
		return "", "", false
	}
	if hf, ok := topModules[module]; ok {
		return hf, param, true
	}
	blk, ok := strings.CutPrefix(module, "blk.")
	if !ok {
		return "", "", false
	}
	number, module, _ := strings.Cut(blk, ".")
	if n, err := strconv.Atoi(number); err != nil || n < 0 || strconv.Itoa(n) != number {
		return "", "", false
	}
	hf, ok := layerModules[module]
	if !ok && f.headNorms {
		hf, ok = headNormModules[module]
	}
	if !ok && f.experts {
		hf, ok = expertModules[module]
	}
	return "model.layers." + number + "." + hf, param, ok
}

// openGGUF reads the header of a GGUF file and makes it look like an MLX folder.
func openGGUF(path string) (*Checkpoint, error) {
	f, size, err := openRegular(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the model %s cannot be read, check its permissions: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the model %s cannot be read: %w", path, err)
	}
	defer f.Close()
	h, err := parseGGUF(f, size, path)
	if err != nil {
		return nil, err
	}
	return h.checkpoint()
}

// checkpoint makes the checkpoint of a GGUF file.
func (h *ggufHeader) checkpoint() (*Checkpoint, error) {
	m := &metaReader{path: h.path, meta: h.meta}
	arch := metaOr(m, "general.architecture", "")
	fam, ok := families[arch]
	if !ok {
		known := slices.Sorted(maps.Keys(families))
		return nil, fmt.Errorf("%s holds a model of the architecture %.40q; mlxcel reads GGUF files of %s: take the MLX version of the model", h.path, arch, strings.Join(known, ", "))
	}
	if n := m.integer("split.count", 1); n > 1 {
		return nil, fmt.Errorf("%s is one of %d parts of a model: join them with llama-gguf-split --merge", h.path, n)
	}
	vocab, err := h.vocab()
	if err != nil {
		return nil, err
	}
	if err := h.place(); err != nil {
		return nil, err
	}
	config, err := h.config(m, arch, fam, vocab)
	if err != nil {
		return nil, err
	}
	tensors, bits, err := h.convert(fam, config)
	if err != nil {
		return nil, err
	}
	if quantization := quantizationConfig(bits); quantization != nil {
		config["quantization"] = quantization
	}
	raw, err := json.MarshalIndent(config, "", "  ")
	if err != nil { // a float in the metadata is infinite or no number
		return nil, damaged(h.path, "its metadata make no config.json (%v)", err)
	}
	return &Checkpoint{
		Path:         h.path,
		Name:         strings.TrimSuffix(filepath.Base(h.path), filepath.Ext(h.path)),
		Format:       FormatGGUF,
		Config:       raw,
		ChatTemplate: vocab.ChatTemplate,
		Pooling:      ggufPooling(h.meta, arch),
		Tensors:      tensors,
		GGUF:         &GGUF{Version: h.version, Meta: h.meta, Vocab: vocab},
	}, nil
}

// convert describes all tensors as an MLX folder would have them, and returns
// the bits of each quantized module.
func (h *ggufHeader) convert(fam family, config map[string]any) (map[string]Tensor, map[string]int, error) {
	wide, err := wideTensors(h.path, h.tensors)
	if err != nil {
		return nil, nil, err
	}
	out, bits := map[string]Tensor{}, map[string]int{}
	for i, t := range h.tensors {
		if t.name == freqFactorsName {
			continue
		}
		module, param, ok := fam.rename(t.name)
		if !ok {
			return nil, nil, fmt.Errorf("%s has a tensor %q that mlxcel does not know in a model of type %s: take the MLX version of the model", h.path, t.name, fam.modelType)
		}
		var half int64
		if fam.interleaved {
			if half, err = h.halfHead(t, module, config); err != nil {
				return nil, nil, err
			}
		}
		whole := h.part(t, half)
		switch {
		case ggufTypes[t.kind].dtype != 0:
			name := module + "." + param
			out[name] = Tensor{Name: name, DType: ggufTypes[t.kind].dtype, Shape: ints(t.dims), Parts: []Part{whole}}
		case param != "weight" || len(t.dims) < 2:
			return nil, nil, damaged(h.path, "tensor %q has the quantized type %s, which a bias or norm cannot have", t.name, ggufTypes[t.kind].name)
		default:
			for _, q := range t.quantized(module, whole, wide[i]) {
				out[q.Name] = q
			}
			bits[module] = quantBits(t.kind)
		}
	}
	return out, bits, nil
}

// part is the whole tensor as it is in the file, whose heads may be interleaved.
func (h *ggufHeader) part(t ggufTensor, half int64) Part {
	p := Part{Path: h.path, Offset: t.offset, Size: t.size}
	if half > 0 {
		rows, _ := product(1, t.dims[:max(len(t.dims)-1, 1)])
		p.Layout.HeadRows, p.Layout.RowBytes = 2*half, t.size/rows
	}
	return p
}

// halfHead returns half the rows of a head in a q or k projection, 0 for other
// tensors.
func (h *ggufHeader) halfHead(t ggufTensor, module string, config map[string]any) (int64, error) {
	var heads int64
	switch {
	case strings.HasSuffix(module, ".q_proj"):
		heads = config["num_attention_heads"].(int64)
	case strings.HasSuffix(module, ".k_proj"):
		heads = config["num_key_value_heads"].(int64)
	default:
		return 0, nil
	}
	headDim := config["head_dim"].(int64)
	if t.dims[0] != heads*headDim || headDim%2 != 0 {
		return 0, damaged(h.path, "tensor %q has %d rows, and %d heads of %d were expected", t.name, t.dims[0], heads, headDim)
	}
	return headDim / 2, nil
}

// tensor returns the tensor of a name in the file, nil if there is none.
func (h *ggufHeader) tensor(name string) *ggufTensor {
	i := slices.IndexFunc(h.tensors, func(t ggufTensor) bool { return t.name == name })
	if i < 0 {
		return nil
	}
	return &h.tensors[i]
}

// has reports whether the file has a tensor of this name.
func (h *ggufHeader) has(name string) bool { return h.tensor(name) != nil }

// freqFactors reads the tensor of RoPE divisors, one for each pair of a head.
func (h *ggufHeader) freqFactors(t *ggufTensor, headDim int64) ([]float32, error) {
	if ggufTypes[t.kind].dtype != bindings.F32 || len(t.dims) != 1 || t.dims[0] != headDim/2 {
		return nil, damaged(h.path, "tensor %q has type %s and shape %v, and F32 [%d] was expected", t.name, ggufTypes[t.kind].name, t.dims, headDim/2)
	}
	b := make([]byte, t.size)
	if err := readRange(h.path, t.offset, b); err != nil {
		return nil, err
	}
	factors := make([]float32, t.dims[0])
	_, err := binary.Decode(b, binary.LittleEndian, factors)
	return factors, err
}
