// Package sample turns sampling settings into ops at the end of a program and into their inputs.
//
// The order is llama-server's: logit bias and penalties, top-k, top-p, min-p, temperature last. Random numbers come
// from a counter: the number for a token depends on the seed and the token's position only, so a request gives the same
// text alone and in a crowd, and there is no state to keep.
package sample

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"mlxcel/bindings"
	"mlxcel/runtime/program"
)

// Settings say how the tokens of one request are chosen. The zero value is greedy: the most likely token.
type Settings struct {
	Temperature float64 // 0: greedy
	TopK        int     // keep the k best; 0: all
	TopP        float64 // keep the shortest head with this probability; 0 or 1: all
	MinP        float64 // keep what has at least this share of the best one's probability; 0: all
	Seed        uint64

	RepetitionPenalty float64 // divides positive and multiplies negative logits of seen tokens; 0 or 1: none
	FrequencyPenalty  float64 // subtracted per time a token was seen
	PresencePenalty   float64 // subtracted once for a seen token
	PenaltyWindow     int     // how many tokens back penalties look, prompt included; 0: 64

	LogitBias map[int32]float64 // added to the logits of these tokens
}

// Bounds of settings, so that their inputs stay small.
const (
	DefaultPenaltyWindow = 64
	maxPenaltyWindow     = 4096
	maxLogitBias         = 1024
)

// Check reports the first setting that is out of range. Vocabulary bounds the ids of LogitBias.
func (s Settings) Check(vocabulary int) error {
	for _, f := range []struct {
		name             string
		value, low, high float64
	}{
		{"temperature", s.Temperature, 0, 100},
		{"top-k", float64(s.TopK), 0, 1 << 24},
		{"top-p", s.TopP, 0, 1},
		{"min-p", s.MinP, 0, 1},
		{"repetition penalty", s.RepetitionPenalty, 0, 100},
		{"frequency penalty", s.FrequencyPenalty, -100, 100},
		{"presence penalty", s.PresencePenalty, -100, 100},
		{"penalty window", float64(s.PenaltyWindow), 0, maxPenaltyWindow},
	} {
		if !(f.value >= f.low && f.value <= f.high) { // NaN fails too
			return fmt.Errorf("%s is %s, want %s to %s", f.name, plain(f.value), plain(f.low), plain(f.high))
		}
	}
	if len(s.LogitBias) > maxLogitBias {
		return fmt.Errorf("logit bias names %d tokens, want at most %d", len(s.LogitBias), maxLogitBias)
	}
	for id, v := range s.LogitBias {
		if id < 0 || int(id) >= vocabulary {
			return fmt.Errorf("logit bias names token %d of a vocabulary of %d", id, vocabulary)
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("logit bias of token %d is %g", id, v)
		}
	}
	return nil
}

// plain prints a number without an exponent.
func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func (s Settings) penalizes() bool {
	return s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1 || s.FrequencyPenalty != 0 || s.PresencePenalty != 0
}

// Features are the parts of the tail that the rows of a step need; programs are kept per Features. History and Biases
// are widths, from short ladders so that there are few programs. Logits hands the logits back as the output "logits",
// as they are before biases and penalties.
type Features struct {
	Random  bool
	History int
	Biases  int
	Logits  bool
}

// Features returns what s needs.
func (s Settings) Features() Features {
	f := Features{Random: s.Temperature > 0}
	if s.penalizes() {
		window := s.PenaltyWindow
		if window == 0 {
			window = DefaultPenaltyWindow
		}
		f.History = ladder(window, 64)
	}
	if len(s.LogitBias) > 0 {
		f.Biases = ladder(len(s.LogitBias), 16)
	}
	return f
}

// ladder is the first of base, 4 base, 16 base, … that is at least n.
func ladder(n, base int) int {
	for base < n {
		base *= 4
	}
	return base
}

// Union is what rows with f and rows with g need together.
func (f Features) Union(g Features) Features {
	return Features{f.Random || g.Random, max(f.History, g.History), max(f.Biases, g.Biases), f.Logits || g.Logits}
}

// Tail returns the function that records the choice of a token per row as the output "tokens", and stores the tokens
// for the next step. Its inputs are those that [Rows.Inputs] fills, in that order.
func (f Features) Tail() func(*program.Builder, program.Step, *program.Value) {
	return func(b *program.Builder, step program.Step, logits *program.Value) {
		raw := logits
		if f.Biases > 0 {
			ids := b.Input("bias_ids", bindings.I32, bindings.AxisRows, f.Biases)
			values := b.Input("bias_values", bindings.F32, bindings.AxisRows, f.Biases)
			logits = b.Bias(logits, ids, values)
		}
		if f.History > 0 {
			history := b.Input("history", bindings.I32, bindings.AxisRows, f.History)
			penalties := b.Input("penalties", bindings.F32, bindings.AxisRows, 3)
			logits = b.Penalize(logits, b.LoadTokens(history, step.RowSlots), penalties)
		}
		var tokens *program.Value
		if f.Random {
			tokens = b.Sample(logits, b.Input("sampling", bindings.F32, bindings.AxisRows, 5))
		} else {
			tokens = b.Argmax(logits)
		}
		b.StoreTokens(tokens, step.RowSlots)
		b.Output("tokens", tokens)
		if f.Logits {
			b.Output("logits", raw)
		}
	}
}

// Rows holds the inputs of a tail for the rows of one step; it is reused from step to step.
type Rows struct {
	features   Features
	biasIDs    []int32
	biasValues []float32
	history    []int32
	penalties  []float32
	sampling   []float32
}

// Reset empties r for a step with the given features.
func (r *Rows) Reset(f Features) {
	*r = Rows{f, r.biasIDs[:0], r.biasValues[:0], r.history[:0], r.penalties[:0], r.sampling[:0]}
}

// Append adds a row. tokens is what is known of the sequence; pending says that one more token precedes the one to be
// chosen, which only the device knows yet. position is that of the token to be chosen.
func (r *Rows) Append(s *Settings, tokens []int32, pending bool, position int) {
	if n := r.features.Biases; n > 0 {
		start := len(r.biasIDs)
		for id, v := range s.LogitBias {
			r.biasIDs = append(r.biasIDs, id)
			r.biasValues = append(r.biasValues, float32(v))
		}
		r.biasIDs = pad(r.biasIDs, start+n, -1)
		r.biasValues = pad(r.biasValues, start+n, 0)
	}
	if n := r.features.History; n > 0 {
		start := len(r.history)
		repetition := s.RepetitionPenalty
		if repetition == 0 {
			repetition = 1
		}
		r.penalties = append(r.penalties, float32(repetition), float32(s.FrequencyPenalty), float32(s.PresencePenalty))
		if s.penalizes() {
			window := s.PenaltyWindow
			if window == 0 {
				window = DefaultPenaltyWindow
			}
			if pending {
				r.history = append(r.history, bindings.TokenLast)
				window--
			}
			r.history = append(r.history, tokens[max(0, len(tokens)-window):]...)
		}
		r.history = pad(r.history, start+n, -1)
	}
	if r.features.Random {
		topP := s.TopP
		if topP == 0 {
			topP = 1
		}
		r.sampling = append(r.sampling, float32(s.Temperature), float32(s.TopK), float32(topP), float32(s.MinP), Uniform(s.Seed, position))
	}
}

func pad[T any](s []T, n int, with T) []T {
	return append(s, slices.Repeat([]T{with}, n-len(s))...)
}

// Input is one input of a tail: one of the two is set.
type Input struct {
	Int32s   []int32
	Float32s []float32
}

// Inputs appends the inputs of the tail, in the order in which it declared them.
func (r *Rows) Inputs(inputs []Input) []Input {
	if r.features.Biases > 0 {
		inputs = append(inputs, Input{Int32s: r.biasIDs}, Input{Float32s: r.biasValues})
	}
	if r.features.History > 0 {
		inputs = append(inputs, Input{Int32s: r.history}, Input{Float32s: r.penalties})
	}
	if r.features.Random {
		inputs = append(inputs, Input{Float32s: r.sampling})
	}
	return inputs
}

// Uniform is the random number in [0, 1) of a position: 24 bits of the SplitMix64 finalizer (Steele, Lea, Flood 2014)
// over the seed and the position.
func Uniform(seed uint64, position int) float32 {
	x := mix(mix(seed) + uint64(position)*0x9e3779b97f4a7c15)
	return float32(x>>40) / (1 << 24)
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
