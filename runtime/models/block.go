package models

import (
	"fmt"
	"math"

	"mlxcel/runtime/program"
)

// graph is what the blocks of a family record with: the builder, the inputs of the step, and the configuration.
type graph struct {
	*program.Builder
	step program.Step
	c    *Config
	rope program.Rope
}

// block is a part of a layer: it maps x [T, hidden] to [T, hidden]. path names its tensors.
type block func(g *graph, x *program.Value, path string, layer int) *program.Value

// decoder is the transformer that most families are: per layer a norm, attention and the residual, then a norm, a
// feed-forward block and the residual. It returns the normed hidden state of the rows that get logits, [R, hidden], or nil
// where none do.
func decoder(g *graph, attention, mlp block) *program.Value {
	h := g.Embed(g.step.Tokens, "model.embed_tokens", g.c.Vocabulary, g.c.Hidden)
	for i := range g.c.Layers {
		if g.Failed() {
			break
		}
		path := fmt.Sprintf("model.layers.%d", i)
		x := g.RMSNorm(h, path+".input_layernorm", g.c.NormEps)
		h = g.residual(h, attention(g, x, path+".self_attn", i), path)
		x = g.RMSNorm(h, path+".post_attention_layernorm", g.c.NormEps)
		h = g.residual(h, mlp(g, x, path+".mlp", i), path)
	}
	if g.step.Rows == nil {
		return nil
	}
	g.Label("model.norm")
	return g.RMSNorm(g.GatherRows(h, g.step.Rows), "model.norm", g.c.NormEps)
}

// linear is a linear layer that must have a bias if the configuration says so.
func (g *graph) linear(x *program.Value, module string, out int, bias bool) *program.Value {
	if bias && !g.Has(module+".bias") {
		g.Fail("%s: the checkpoint has no tensor %s.bias", module, module)
	}
	return g.Linear(x, module, out)
}

func (g *graph) residual(h, x *program.Value, path string) *program.Value {
	g.Label(path)
	return g.Add(h, x)
}

// attention is grouped-query attention with rotary positions.
func attention(g *graph, x *program.Value, path string, layer int) *program.Value {
	return g.attend(x, path, layer, func(x *program.Value, _ string) *program.Value { return x })
}

// normedAttention is attention whose queries and keys are normalised per head before they are turned.
func normedAttention(g *graph, x *program.Value, path string, layer int) *program.Value {
	return g.attend(x, path, layer, func(x *program.Value, module string) *program.Value {
		return g.RMSNorm(x, module, g.c.NormEps)
	})
}

func (g *graph) attend(x *program.Value, path string, layer int, norm func(x *program.Value, module string) *program.Value) *program.Value {
	c := g.c
	heads := func(proj string, n int) *program.Value {
		y := g.linear(x, path+proj, n*c.HeadDim, c.AttentionBias || c.queryBias)
		g.Label(path)
		return g.Reshape(y, n, c.HeadDim)
	}
	q, k, v := heads(".q_proj", c.Heads), heads(".k_proj", c.KVHeads), heads(".v_proj", c.KVHeads)
	q, k = norm(q, path+".q_norm"), norm(k, path+".k_norm")
	g.Label(path)
	q, k = g.Rope(q, g.step.Positions, g.rope), g.Rope(k, g.step.Positions, g.rope)
	y := g.Attention(q, k, v, g.step, 1/math.Sqrt(float64(c.HeadDim)), c.window(layer))
	return g.linear(g.Reshape(y, c.Heads*c.HeadDim), path+".o_proj", c.Hidden, c.AttentionBias)
}

// swiglu is the gated feed-forward block down(silu(gate(x)) * up(x)).
func swiglu(g *graph, x *program.Value, path string, _ int) *program.Value {
	gate := g.linear(x, path+".gate_proj", g.c.Intermediate, g.c.MLPBias)
	up := g.linear(x, path+".up_proj", g.c.Intermediate, g.c.MLPBias)
	g.Label(path)
	return g.linear(g.SwiGLU(gate, up), path+".down_proj", g.c.Hidden, g.c.MLPBias)
}

// moe routes every token to its best experts, each a swiglu of its own, and sums their results by probability. The
// experts' matrices are stacked under switch_mlp, or lie one by one under experts, as Hugging Face stores them.
func moe(g *graph, x *program.Value, path string, _ int) *program.Value {
	c := g.c
	logits := g.Linear(x, path+".gate", c.Experts)
	g.Label(path)
	indices, weights := g.Route(logits, c.ExpertsPerToken, c.NormalizeExpertProb)
	experts := func(x *program.Value, proj string, out int) *program.Value {
		modules := []string{path + ".switch_mlp" + proj}
		if !g.Has(modules[0] + ".weight") {
			modules = nil
			for e := range c.Experts {
				modules = append(modules, fmt.Sprintf("%s.experts.%d%s", path, e, proj))
			}
		}
		return g.ExpertLinear(x, indices, c.Experts, out, modules...)
	}
	gate := experts(x, ".gate_proj", c.ExpertIntermediate)
	up := experts(x, ".up_proj", c.ExpertIntermediate)
	g.Label(path)
	y := experts(g.SwiGLU(gate, up), ".down_proj", c.Hidden)
	g.Label(path)
	return g.Combine(y, weights)
}
