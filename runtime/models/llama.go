package models

import "mlxcel/runtime/program"

// Llama 1 to 3, Mistral, SmolLM and the many models that store themselves as one of them.
var _ = register("llama", llama, llamaDefaults)
var _ = register("mistral", llama, llamaDefaults)

func llamaDefaults(c *Config) error {
	if c.RopeTheta == 0 {
		c.RopeTheta = 10_000
	}
	return nil
}

func llama(g *graph) *program.Value { return decoder(g, attention, swiglu) }
