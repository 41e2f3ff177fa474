package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"

	"mlxcel/runtime/engine"
	"mlxcel/runtime/weights"
)

// ErrNoEmbedder is wrapped by the errors of models that make no embeddings.
var ErrNoEmbedder = errors.New("the model is no embedding model")

// Embeds is nil if the model makes embeddings, or says why not. A model does whose files say how hidden states become a
// vector: those of sentence-transformers beside an MLX model, or the metadata of a GGUF file.
func (m *Model) Embeds() error {
	switch p := m.checkpoint.Pooling; p {
	case weights.PoolingMean, weights.PoolingLast:
		return nil
	case weights.PoolingNone:
		return ErrNoEmbedder
	default:
		return fmt.Errorf("%w that mlxcel knows: it makes its vectors with the pooling %q, and mean and last are known", ErrNoEmbedder, p)
	}
}

// Embed returns a vector of length 1 for each input, tokens as [Model.PromptTokens] makes them. The vectors have as many
// numbers as the model's hidden states.
func (m *Model) Embed(ctx context.Context, inputs [][]int32) ([][]float32, error) {
	if err := m.Embeds(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pools := make([]pool, len(inputs))
	results := make(chan engine.Result, len(inputs))
	submitted := 0
	var failure error
	for i, tokens := range inputs {
		pools[i] = pool{last: m.checkpoint.Pooling == weights.PoolingLast, sum: make([]float64, m.model.Config.Hidden)}
		failure = m.engine.Submit(ctx, engine.Request{
			Prompt: tokens, Hidden: pools[i].add, Done: func(r engine.Result) { results <- r },
		})
		if failure != nil {
			cancel()
			break
		}
		submitted++
	}
	for range submitted {
		if r := <-results; r.Err != nil && failure == nil {
			failure = r.Err
			cancel()
		}
	}
	if failure != nil {
		return nil, failure
	}
	vectors := make([][]float32, len(inputs))
	for i := range pools {
		vectors[i] = pools[i].vector()
	}
	return vectors, nil
}

// pool makes a vector of hidden states. Since it has length 1, a sum does as well as a mean.
type pool struct {
	last bool
	sum  []float64
}

// add takes the states of the tokens from a position on, f32 [n, hidden].
func (p *pool) add(position int, states []float32) {
	width := len(p.sum)
	if position == 0 || p.last {
		clear(p.sum)
	}
	if p.last {
		states = states[len(states)-width:]
	}
	for i, v := range states {
		p.sum[i%width] += float64(v)
	}
}

func (p *pool) vector() []float32 {
	length := 0.0
	for _, v := range p.sum {
		length += v * v
	}
	length = max(math.Sqrt(length), math.SmallestNonzeroFloat32)
	vector := make([]float32, len(p.sum))
	for i, v := range p.sum {
		vector[i] = float32(v / length)
	}
	return vector
}
