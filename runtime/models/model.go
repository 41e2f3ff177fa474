package models

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mlxcel/bindings"
	"mlxcel/runtime/program"
)

// family is a kind of model: defaults completes and checks its configuration, record records a step up to the normed
// hidden state of the rows that get logits, [R, hidden].
type family struct {
	record   func(*graph) *program.Value
	defaults func(*Config) error
}

var families = map[string]family{}

// register makes a family known; files of families call it for a package variable.
func register(modelType string, record func(*graph) *program.Value, defaults func(*Config) error) bool {
	families[modelType] = family{record, defaults}
	return true
}

// Families lists the supported values of model_type.
func Families() []string { return slices.Sorted(maps.Keys(families)) }

// Tensors looks up what a checkpoint holds.
type Tensors interface {
	Lookup(tensor string) (dtype bindings.DType, shape []int, ok bool)
}

// Model is a configured family over the tensors of a checkpoint.
type Model struct {
	Config *Config
	family family
	rope   program.Rope
	Tensors
	quants map[string]program.Quant
}

// Open configures the family that config.json names.
func Open(config []byte, tensors Tensors) (*Model, error) {
	c, err := ParseConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%w: download the model again, or take another version of it", err)
	}
	f, ok := families[c.ModelType]
	if !ok {
		return nil, fmt.Errorf("config.json: model type %q is not supported; mlxcel runs %s", c.ModelType, strings.Join(Families(), ", "))
	}
	if err := cmp.Or(f.defaults(c), c.checkLayers()); err != nil {
		return nil, err
	}
	m := &Model{Config: c, family: f, Tensors: tensors}
	if m.rope, err = c.RopeScaling.rope(c.HeadDim, c.RopeTheta, c.RopeTraditional); err != nil {
		return nil, err
	}
	if m.quants, err = c.moduleQuants(); err != nil {
		return nil, err
	}
	return m, nil
}

// Quantization is the format that the configuration states for a module.
func (m *Model) Quantization(module string) (program.Quant, bool) {
	q, ok := m.quants[module]
	return q, ok
}

// Record records one step: from the inputs of [program.Step] to the logits f32 [R, vocabulary], which it hands to
// tail together with the builder. A step without rows ends with the state. Activations have the given dtype.
func (m *Model) Record(activation bindings.DType, limits program.Limits, tail func(*program.Builder, program.Step, *program.Value)) (*program.Program, error) {
	return m.record(activation, limits, func(g *graph, hidden *program.Value) {
		logits := g.Linear(hidden, m.head(), m.Config.Vocabulary)
		g.Label("sampling")
		tail(g.Builder, g.step, widened(g, logits))
	})
}

// RecordHidden records one step up to the normed hidden states of the rows, its output "hidden", f32 [R, hidden].
func (m *Model) RecordHidden(activation bindings.DType, limits program.Limits) (*program.Program, error) {
	return m.record(activation, limits, func(g *graph, hidden *program.Value) {
		g.Output("hidden", widened(g, hidden))
	})
}

// record records a step; end goes on from the hidden states, if the step has rows.
func (m *Model) record(activation bindings.DType, limits program.Limits, end func(*graph, *program.Value)) (*program.Program, error) {
	b := program.NewBuilder(m, activation, limits)
	step := b.Step()
	step.Tokens = b.LoadTokens(step.Tokens, step.TokenSlots)
	g := &graph{Builder: b, step: step, c: m.Config, rope: m.rope}
	if h := m.family.record(g); h != nil {
		end(g, h)
	}
	p, err := b.Program()
	if err != nil {
		return nil, fmt.Errorf("%w: config.json and the weights do not belong together, download the model again", err)
	}
	program.Optimize(p)
	return p, nil
}

// widened is v in f32, in which the host reads values.
func widened(g *graph, v *program.Value) *program.Value {
	if v.Type.DType == bindings.F32 {
		return v
	}
	return g.Cast(v, bindings.F32)
}

// head is the module that makes logits of hidden states.
func (m *Model) head() string {
	if m.Config.tied() {
		return "model.embed_tokens"
	}
	return "lm_head"
}
