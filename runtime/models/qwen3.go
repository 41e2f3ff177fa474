package models

import (
	"errors"
	"slices"

	"mlxcel/runtime/program"
)

// Qwen 3: llama with a norm on the queries and keys of every head.
var _ = register("qwen3", qwen3, qwen3Defaults)

func qwen3Defaults(c *Config) error {
	c.LayerTypes = nil
	c.RopeTraditional = false
	if c.RopeTheta == 0 {
		return errors.New(`config.json: "rope_theta" is missing`)
	}
	return nil
}

func qwen3(g *graph) *program.Value { return decoder(g, normedAttention, swiglu) }

// Qwen 3 MoE: qwen3 with experts in all layers but the ones that the configuration keeps dense.
var _ = register("qwen3_moe", qwen3MoE, func(c *Config) error {
	c.RopeScaling = nil // as mlx-lm does
	if c.SparseStep == 0 {
		c.SparseStep = 1
	}
	if c.Experts > 0 && (c.ExpertsPerToken < 1 || c.ExpertsPerToken > c.Experts || c.ExpertIntermediate < 1) {
		return errors.New(`config.json: "num_experts_per_tok" or "moe_intermediate_size" does not fit "num_experts"`)
	}
	return qwen3Defaults(c)
})

func qwen3MoE(g *graph) *program.Value {
	return decoder(g, normedAttention, func(g *graph, x *program.Value, path string, layer int) *program.Value {
		c := g.c
		sparse := c.Experts > 0 && (layer+1)%c.SparseStep == 0 && !slices.Contains(c.DenseLayers, layer)
		if sparse {
			return moe(g, x, path, layer)
		}
		return swiglu(g, x, path, layer)
	})
}
