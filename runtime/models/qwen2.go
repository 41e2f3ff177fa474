package models

// Qwen 1.5, 2 and 2.5: llama with biases on q, k and v, and no head size of its own.
var _ = register("qwen2", llama, func(c *Config) error {
	c.HeadDim = c.Hidden / c.Heads
	c.queryBias, c.AttentionBias, c.MLPBias = true, false, false
	c.LayerTypes = nil // mlx-lm attends fully in every layer
	if c.RopeTheta == 0 {
		c.RopeTheta = 1_000_000
	}
	return nil
})
