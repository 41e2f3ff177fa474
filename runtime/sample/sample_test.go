package sample

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/bindings"
	"mlxcel/runtime/program"
)

func TestCheck(t *testing.T) {
	require.NoError(t, Settings{}.Check(10))
	require.NoError(t, Settings{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, LogitBias: map[int32]float64{9: -100}}.Check(10))
	many := map[int32]float64{}
	for i := range int32(maxLogitBias + 1) {
		many[i] = 1
	}
	for want, s := range map[string]Settings{
		"temperature is -1, want 0 to 100":                {Temperature: -1},
		"temperature is NaN, want 0 to 100":               {Temperature: math.NaN()},
		"top-k is -1, want 0 to 16777216":                 {TopK: -1},
		"top-p is 1.5, want 0 to 1":                       {TopP: 1.5},
		"min-p is +Inf, want 0 to 1":                      {MinP: math.Inf(1)},
		"repetition penalty is -2, want 0 to 100":         {RepetitionPenalty: -2},
		"frequency penalty is 200, want -100 to 100":      {FrequencyPenalty: 200},
		"presence penalty is -200, want -100 to 100":      {PresencePenalty: -200},
		"penalty window is 5000, want 0 to 4096":          {PenaltyWindow: 5000},
		"logit bias names token 10 of a vocabulary of 10": {LogitBias: map[int32]float64{10: 1}},
		"logit bias of token 1 is +Inf":                   {LogitBias: map[int32]float64{1: math.Inf(1)}},
		"logit bias names 1025 tokens, want at most 1024": {LogitBias: many},
	} {
		require.EqualError(t, s.Check(10), want)
	}
}

func TestFeatures(t *testing.T) {
	require.Equal(t, Features{}, Settings{RepetitionPenalty: 1, TopP: 1}.Features())
	require.Equal(t, Features{Random: true}, Settings{Temperature: 1}.Features())
	require.Equal(t, Features{History: 64}, Settings{PresencePenalty: 1}.Features())
	require.Equal(t, Features{History: 256}, Settings{RepetitionPenalty: 1.1, PenaltyWindow: 65}.Features())
	require.Equal(t, Features{Biases: 64}, Settings{LogitBias: func() map[int32]float64 {
		m := map[int32]float64{}
		for i := range int32(17) {
			m[i] = 1
		}
		return m
	}()}.Features())
	require.Equal(t, Features{true, 256, 16, true}, Features{false, 256, 0, true}.Union(Features{true, 64, 16, false}))
}

// The inputs of rows with different settings, in the order in which the tail declares them.
func TestRows(t *testing.T) {
	biased := Settings{LogitBias: map[int32]float64{3: -1.5}}
	penalized := Settings{Temperature: 0.5, TopK: 2, MinP: 0.1, Seed: 7, RepetitionPenalty: 1.5, PresencePenalty: 0.25, PenaltyWindow: 3}
	f := biased.Features().Union(penalized.Features())
	require.Equal(t, Features{Random: true, History: 64, Biases: 16}, f)

	b := program.NewBuilder(nil, bindings.F32, program.Limits{Tokens: 1, Rows: 2, Sequences: 2})
	step := b.Step()
	declared := 0
	f.Tail()(b, step, b.Input("logits", bindings.F32, bindings.AxisRows, 8))
	p, err := b.Program()
	require.NoError(t, err)
	var names []string
	for _, v := range p.Inputs[9:] { // after those of the step and the logits
		names = append(names, v.Name)
		declared++
	}
	require.Equal(t, []string{"bias_ids", "bias_values", "history", "penalties", "sampling"}, names)

	var r Rows
	for range 2 { // a reused Rows forgets what it held
		r.Reset(f)
		r.Append(&biased, []int32{1, 2}, true, 3)
		r.Append(&penalized, []int32{4, 5, 6, 7}, true, 5)
	}
	in := r.Inputs(nil)
	require.Len(t, in, declared)
	require.Equal(t, append([]int32{3}, repeat(-1, 31)...), in[0].Int32s)
	require.Equal(t, float32(-1.5), in[1].Float32s[0])
	require.Equal(t, make([]float32, 31), in[1].Float32s[1:])
	require.Equal(t, repeat(-1, 64), in[2].Int32s[:64], "a row without penalties looks at nothing")
	require.Equal(t, append([]int32{bindings.TokenLast, 6, 7}, repeat(-1, 61)...), in[2].Int32s[64:])
	require.Equal(t, []float32{1, 0, 0, 1.5, 0, 0.25}, in[3].Float32s)
	require.Equal(t, []float32{0, 0, 1, 0, Uniform(0, 3), 0.5, 2, 1, 0.1, Uniform(7, 5)}, in[4].Float32s)
}

func repeat(v int32, n int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// Uniform must look uniform along positions and along seeds: 16 bins, chi-squared with 15 degrees of freedom stays
// under 45 but once in ten thousand, and here it is always the same.
func TestUniform(t *testing.T) {
	for name, at := range map[string]func(i int) float32{
		"positions": func(i int) float32 { return Uniform(1, i) },
		"seeds":     func(i int) float32 { return Uniform(uint64(i), 1) },
	} {
		const n = 16000
		var bins [16]float64
		for i := range n {
			u := at(i)
			require.True(t, u >= 0 && u < 1)
			bins[int(u*16)]++
		}
		chi := 0.0
		for _, c := range bins {
			chi += (c - n/16) * (c - n/16) / (n / 16)
		}
		require.Less(t, chi, 45.0, name)
	}
	require.Equal(t, Uniform(3, 4), Uniform(3, 4))
	require.NotEqual(t, Uniform(3, 4), Uniform(4, 3))
}
