package models

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"mlxcel/runtime/program"
)

// Scaling is "rope_scaling", or "rope_parameters", of config.json.
type Scaling struct {
	Type  string
	Theta float64

	Factor           float64
	OriginalContext  float64
	LowFrequency     float64 // llama3
	HighFrequency    float64
	BetaFast         float64 // yarn
	BetaSlow         float64
	MScale           float64
	MScaleAllDims    float64
	FrequencyFactors []float64 // of a GGUF: one divisor per pair
}

// UnmarshalJSON fills in the defaults of the keys that are left out.
func (s *Scaling) UnmarshalJSON(text []byte) error {
	f := struct {
		Type             string    `json:"type"`
		RopeType         string    `json:"rope_type"`
		Theta            float64   `json:"rope_theta"`
		Factor           float64   `json:"factor"`
		OriginalContext  float64   `json:"original_max_position_embeddings"`
		LowFrequency     float64   `json:"low_freq_factor"`
		HighFrequency    float64   `json:"high_freq_factor"`
		BetaFast         float64   `json:"beta_fast"`
		BetaSlow         float64   `json:"beta_slow"`
		MScale           float64   `json:"mscale"`
		MScaleAllDims    float64   `json:"mscale_all_dim"`
		FrequencyFactors []float64 `json:"frequency_factors"`
	}{LowFrequency: 1, HighFrequency: 4, BetaFast: 32, BetaSlow: 1, MScale: 1}
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	if f.Type == "" {
		f.Type = f.RopeType
	}
	*s = Scaling{f.Type, f.Theta, f.Factor, f.OriginalContext, f.LowFrequency, f.HighFrequency,
		f.BetaFast, f.BetaSlow, f.MScale, f.MScaleAllDims, f.FrequencyFactors}
	return nil
}

// rope makes the rotary embedding of a family over `dims` dimensions.
func (s *Scaling) rope(dims int, theta float64, traditional bool) (program.Rope, error) {
	r, err := s.periods(dims, theta, traditional)
	for _, p := range r.Periods {
		if !(p > 0) || math.IsInf(float64(p), 0) { // NaN fails too
			err = cmp.Or(err, errors.New(`config.json: the numbers of "rope_scaling" make no sense together`))
		}
	}
	if math.IsInf(r.MScale, 0) || math.IsNaN(r.MScale) || math.IsInf(1/r.Scale, 0) && r.Scale != 0 {
		err = cmp.Or(err, errors.New(`config.json: the numbers of "rope_scaling" make no sense`))
	}
	return r, err
}

// periods works the embedding out; its numbers may be absurd.
func (s *Scaling) periods(dims int, theta float64, traditional bool) (program.Rope, error) {
	r := program.Rope{Dims: dims, Traditional: traditional, Base: theta}
	if theta <= 0 || math.IsInf(theta, 0) {
		return r, fmt.Errorf("config.json: %q is %g, want a positive number", "rope_theta", theta)
	}
	if s == nil || s.Type == "" || s.Type == "default" || s.Type == "mrope" {
		return r, nil // mrope turns text as default does
	}
	if s.Type == "frequency_factors" {
		if len(s.FrequencyFactors) != dims/2 {
			return r, fmt.Errorf("%d rope frequency factors for %d dimensions", len(s.FrequencyFactors), dims)
		}
		for i, p := range basePeriods(dims, theta) {
			r.Periods = append(r.Periods, float32(p*s.FrequencyFactors[i]))
		}
		return r, nil
	}
	if !slices.Contains([]string{"linear", "llama3", "yarn", "deepseek_yarn"}, s.Type) {
		return r, fmt.Errorf("config.json: rope type %q is not supported", s.Type)
	}
	const largest = 1e6 // above any model's
	if !(s.Factor > 0 && s.Factor < largest) {
		return r, errors.New(`config.json: "rope_scaling" needs a positive "factor"`)
	}
	if s.OriginalContext < 0 || s.Type == "llama3" && s.LowFrequency >= s.HighFrequency {
		return r, errors.New(`config.json: the numbers of "rope_scaling" make no sense together`)
	}
	switch s.Type {
	case "linear":
		r.Scale = 1 / s.Factor
	case "llama3":
		r.Periods = s.llama3(basePeriods(dims, theta))
	case "yarn", "deepseek_yarn":
		r.Periods = s.yarn(basePeriods(dims, theta), theta)
		r.MScale = yarnMScale(s.Factor, s.MScale) / yarnMScale(s.Factor, s.MScaleAllDims)
	}
	return r, nil
}

// basePeriods are theta^(2i/dims): how many positions a radian takes, per pair of dimensions.
func basePeriods(dims int, theta float64) []float64 {
	periods := make([]float64, dims/2)
	for i := range periods {
		periods[i] = math.Pow(theta, float64(2*i)/float64(dims))
	}
	return periods
}

// llama3 stretches long waves by the factor, keeps short ones, and blends in between (Llama 3.1 model card).
func (s *Scaling) llama3(periods []float64) []float32 {
	context := s.OriginalContext
	if context == 0 {
		context = 8192
	}
	longest, shortest := context/s.LowFrequency, context/s.HighFrequency
	scaled := make([]float32, len(periods))
	for i, p := range periods {
		wave := 2 * math.Pi * p
		switch {
		case wave > longest:
			p *= s.Factor
		case wave > shortest && wave < longest:
			smooth := (context/wave - s.LowFrequency) / (s.HighFrequency - s.LowFrequency)
			p /= (1-smooth)/s.Factor + smooth
		}
		scaled[i] = float32(p)
	}
	return scaled
}

// yarn interpolates the slow dimensions and keeps the fast ones (Peng et al. 2023, "YaRN", section 3.2).
func (s *Scaling) yarn(periods []float64, theta float64) []float32 {
	context := s.OriginalContext
	if context == 0 {
		context = 4096
	}
	dims := float64(2 * len(periods))
	dimension := func(rotations float64) float64 {
		return dims * math.Log(context/(rotations*2*math.Pi)) / (2 * math.Log(theta))
	}
	low := max(math.Floor(dimension(s.BetaFast)), 0)
	high := min(math.Ceil(dimension(s.BetaSlow)), dims-1)
	if low == high {
		high += 0.001
	}
	scaled := make([]float32, len(periods))
	for i, kept := range periods {
		keep := 1 - min(max((float64(i)-low)/(high-low), 0), 1)
		stretched := s.Factor * kept
		scaled[i] = float32(stretched * kept / (stretched*keep + kept*(1-keep)))
	}
	return scaled
}

func yarnMScale(factor, mscale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*mscale*math.Log(factor) + 1
}
