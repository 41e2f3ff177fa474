package runtime

import (
	"cmp"
	"math"
	"slices"
)

const maxTopLogprobs = 100

// logprobs returns the log-probability of a token under a row of logits, and the n likeliest tokens in falling order,
// among equals the lower id first.
func logprobs(logits []float32, token int32, n int) (float64, []TokenLogprob) {
	largest := float64(slices.Max(logits))
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - largest)
	}
	norm := largest + math.Log(sum)
	var top []TokenLogprob // the best so far, kept in order: n is small
	for id, v := range logits {
		p := float64(v) - norm
		if n == 0 || len(top) == n && p <= top[n-1].Logprob {
			continue
		}
		if len(top) == n {
			top = top[:n-1]
		}
		i, _ := slices.BinarySearchFunc(top, p, func(t TokenLogprob, p float64) int {
			if t.Logprob == p {
				return -1 // after its equals
			}
			return cmp.Compare(p, t.Logprob)
		})
		top = slices.Insert(top, i, TokenLogprob{int32(id), p})
	}
	return float64(logits[token]) - norm, top
}
