package runtime

import (
	"fmt"
	"math"

	"mlxcel/bindings"
	"mlxcel/runtime/models"
	"mlxcel/runtime/program"
	"mlxcel/runtime/sample"
)

// Inspection is what can be said of a model without loading it, or any library.
type Inspection struct {
	Name         string
	Path         string
	Format       string // "mlx" or "gguf"
	Family       string // model_type
	Config       *models.Config
	Parameters   int64          // weights, as numbers
	StoredBytes  int64          // in the files
	Formats      map[string]int // how many tensors have which format: "affine 4 bit, group 32" or a dtype
	HasTokenizer bool
	HasTemplate  bool
	EOS          []int32

	source *source
}

// Inspect reads the headers of a model folder or GGUF file; an empty path is [DefaultModel].
func Inspect(path string) (*Inspection, error) {
	if path == "" {
		var err error
		if path, err = DefaultModel(); err != nil {
			return nil, err
		}
	}
	s, err := openSource(path)
	if err != nil {
		return nil, err
	}
	i := &Inspection{
		Name: s.checkpoint.Name, Path: s.checkpoint.Path, Format: s.checkpoint.Format,
		Family: s.model.Config.ModelType, Config: s.model.Config, Formats: map[string]int{},
		HasTokenizer: s.tokenizer != nil, HasTemplate: s.chat.exists(), EOS: s.eos, source: s,
	}
	p, err := i.record(1, 1, bindings.F32)
	if err != nil {
		return nil, err
	}
	for _, t := range s.checkpoint.Tensors {
		i.StoredBytes += t.Size()
	}
	i.count(p)
	return i, nil
}

// count adds up the weights that the program uses, and their formats.
func (i *Inspection) count(p *program.Program) {
	packed := map[*program.Value]bool{}
	for _, op := range p.Ops {
		for _, m := range op.Matrices() {
			if packed[m.Weight] {
				continue
			}
			packed[m.Weight] = true
			format := m.Quant.String()
			if m.Quant.Mode == bindings.QuantNone {
				format = m.Weight.Weight.Stored.String()
			}
			i.Formats[format] += max(len(m.Weight.Weight.Tensors), 1)
			i.Parameters += int64(m.Elements())
		}
	}
}

func (i *Inspection) record(tokens, rows int, activation bindings.DType) (*program.Program, error) {
	if tokens < 1 || tokens > math.MaxInt32 || rows < 0 || rows > tokens {
		return nil, fmt.Errorf("a program for %d tokens and %d rows is not possible", tokens, rows)
	}
	return i.source.model.Record(activation, program.Limits{Tokens: tokens, Rows: rows, Sequences: max(rows, 1)}, sample.Features{}.Tail())
}

// Program returns the text of the program for a step of so many tokens, of which `rows` get logits, with activations
// in f32, as on the CPU.
func (i *Inspection) Program(tokens, rows int) (string, error) {
	p, err := i.record(tokens, rows, bindings.F32)
	if err != nil {
		return "", err
	}
	return p.String(), nil
}

// MemoryNeed is the memory of a loaded model, in bytes.
type MemoryNeed struct {
	Weights     int64 // resident
	StatePer1k  int64 // keys and values of 1,024 tokens
	StateOfFull int64 // keys and values of one sequence as long as the model allows
}

// MemoryNeed returns what the model takes on the CPU, where everything dense is kept in f32.
func (i *Inspection) MemoryNeed() (MemoryNeed, error) {
	p, err := i.record(1, 1, bindings.F32)
	if err != nil {
		return MemoryNeed{}, err
	}
	var n MemoryNeed
	for _, v := range p.Weights {
		n.Weights += int64(v.Type.Elements() * v.Weight.Resident.Size())
	}
	var perToken int64
	for _, l := range p.Layers {
		perToken += int64(l.KVHeads * (l.KeyDim + l.ValueDim) * bindings.F32.Size())
	}
	n.StatePer1k, n.StateOfFull = 1024*perToken, int64(i.Config.MaxPositions)*perToken
	return n, nil
}
