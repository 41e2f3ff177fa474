package server

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"

	"mlxcel/runtime"
)

// Bounds of fields.
const (
	maxStops       = 8
	maxStopBytes   = 1024
	maxChoices     = 32
	maxLogitBias   = 1024
	maxTopLogprobs = 20
	maxTokens      = math.MaxInt32
)

// sampling reads the fields that say how tokens are chosen, which all APIs have in common.
func (s *Server) sampling(o *object, l *loaded) runtime.Sampling {
	v := *s.options.Sampling
	v.Temperature = o.number("temperature", v.Temperature, 0, 2)
	v.TopP = o.number("top_p", v.TopP, 0, 1)
	v.MinP = o.number("min_p", v.MinP, 0, 1)
	v.FrequencyPenalty = o.number("frequency_penalty", v.FrequencyPenalty, -2, 2)
	v.PresencePenalty = o.number("presence_penalty", v.PresencePenalty, -2, 2)
	v.RepetitionPenalty = o.number("repetition_penalty", o.number("repeat_penalty", v.RepetitionPenalty, 0, 10), 0, 10)
	if n, ok := o.integer("top_k", -1, 1<<20); ok {
		v.TopK = max(int(n), 0) // vLLM's clients say -1 for all
	}
	if n, ok := o.integer("repeat_last_n", 1, 4096); ok {
		v.PenaltyWindow = int(n)
	}
	if n, ok := o.integer("seed", math.MinInt64, math.MaxInt64); ok {
		v.Seed = uint64(n)
	} else {
		v.Seed = rand.Uint64()
	}
	v.LogitBias = logitBias(o, l)
	return v
}

// logitBias reads {"token id": bias}.
func logitBias(o *object, l *loaded) map[int32]float64 {
	const field = "logit_bias"
	fields := o.object(field)
	if fields == nil || len(fields.fields) == 0 {
		return nil
	}
	if n := len(fields.fields); n > maxLogitBias {
		o.bad(field, "want at most %d tokens, got %d", maxLogitBias, n)
		return nil
	}
	bias := make(map[int32]float64, len(fields.fields))
	for key := range fields.fields {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || id >= int64(l.vocab) {
			o.bad(field, "want token ids from 0 to %d as keys, got %s", l.vocab-1, shorten(key))
			return nil
		}
		bias[int32(id)] = fields.number(key, 0, -100, 100)
	}
	return bias
}

// stops reads a text or a list of texts that end an answer.
func stops(o *object) []string {
	const field = "stop"
	v := o.raw(field)
	if v == nil {
		return nil
	}
	list := []json.RawMessage{v}
	if v[0] == '[' {
		if list = o.list(field, maxStops); len(list) == 0 {
			o.bad(field, "want 1 to %d texts, got none", maxStops)
			return nil
		}
	}
	texts := make([]string, len(list))
	for i, e := range list {
		if json.Unmarshal(e, &texts[i]) != nil || kindOf(e) == "null" {
			o.bad(field, "want a string or an array of 1 to %d strings, got %s", maxStops, kindOf(e))
			return nil
		}
		if n := len(texts[i]); n == 0 || n > maxStopBytes {
			o.bad(field, "want texts of 1 to %d bytes, got one of %d", maxStopBytes, n)
			return nil
		}
	}
	return texts
}

// choices reads n.
func choices(o *object) int {
	if n, ok := o.integer("n", 1, maxChoices); ok {
		return int(n)
	}
	return 1
}

// limit reads how long an answer may be, from the first of the fields that is there.
func limit(o *object, otherwise int, fields ...string) int {
	n := otherwise
	for i := len(fields) - 1; i >= 0; i-- {
		if v, ok := o.integer(fields[i], 1, maxTokens); ok {
			n = int(v)
		}
	}
	return n
}

// streaming reads stream and stream_options.
func streaming(o *object) (stream, withUsage bool) {
	stream = o.flag("stream", false)
	options := o.object("stream_options")
	if options == nil {
		return stream, false
	}
	if !stream {
		o.bad("stream_options", "is only allowed with stream: true")
	}
	options.flag("include_obfuscation", false) // pads chunks against eavesdroppers, which nobody needs here
	return stream, options.flag("include_usage", false)
}

// about reads fields that have no effect on an answer: their types are checked all the same.
func about(o *object) {
	for _, field := range []string{"user", "safety_identifier", "prompt_cache_key"} {
		o.text(field)
	}
	o.word("service_tier", "", "auto", "default", "flex", "scale", "priority")
	metadata(o)
}

// metadata reads up to 16 pairs of short texts, as OpenAI bounds them.
func metadata(o *object) map[string]string {
	fields := o.object("metadata")
	if fields == nil {
		return map[string]string{}
	}
	if n := len(fields.fields); n > 16 {
		o.bad("metadata", "want at most 16 pairs, got %d", n)
		return nil
	}
	pairs := make(map[string]string, len(fields.fields))
	for key := range fields.fields {
		value, _ := fields.text(key)
		if len(key) > 64 || len(value) > 512 {
			o.bad("metadata", "want keys of at most 64 and values of at most 512 bytes")
		}
		pairs[key] = value
	}
	return pairs
}

// absent refuses fields that ask for what the server cannot do.
func absent(o *object, fields map[string]string) {
	for _, field := range sortedKeys(fields) {
		if o.has(field) {
			o.fail(notYet(o.name(field), "%s", fields[field]))
		}
	}
}
