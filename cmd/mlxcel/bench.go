package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/host"
	"mlxcel/runtime"
)

const benchHelp = `
Reads random prompts and writes an answer to each, one after the other. The first
round, in which memory is taken and kernels are compiled, is told on its own; the
figures of the others are medians.

--random takes no model but makes up the weights of one of a known size, which is as
fast as the real one: 0.6b, 4b, 8b and 30b-a3b are those of Qwen3.`

const benchExample = `
mlxcel bench -m MODEL
mlxcel bench --random 4b --bits 4 --prompt 2048 -n 128`

type benchOptions struct {
	modelOptions
	random         string
	bits           int
	prompt, tokens int
	rounds         int
	json           bool
}

func (a *app) bench(f *pflag.FlagSet) cli.Run {
	var o benchOptions
	o.modelOptions.define(f)
	f.StringVar(&o.random, "random", "", "make up a model of this `SHAPE`: 0.6b, 4b, 8b, 30b-a3b")
	f.IntVar(&o.bits, "bits", 4, "with --random: `BITS` of a weight, 4 or 8 in groups of 64, or 16 for bf16")
	f.IntVar(&o.prompt, "prompt", 512, "length of a prompt in `TOKENS`")
	f.IntVarP(&o.tokens, "max-tokens", "n", 128, "length of an answer in `TOKENS`")
	f.IntVar(&o.rounds, "rounds", 5, "`NUMBER` of rounds after the first one")
	f.BoolVar(&o.json, "json", false, "print one JSON object; times in seconds, memory in bytes")
	o.modelOptions.defineRest(f)
	return func(ctx context.Context, _ []string, s cli.Streams) error {
		if err := o.check(f); err != nil {
			return cli.Usagef("%v", err)
		}
		return a.runBench(ctx, &o, s)
	}
}

func (o *benchOptions) check(f *pflag.FlagSet) error {
	switch {
	case o.random != "" && f.Changed("model"):
		return errors.New("--random takes no model")
	case o.random == "" && f.Changed("bits"):
		return errors.New("--bits is for --random")
	case o.prompt < 1 || o.tokens < 2 || o.rounds < 1:
		return errors.New("want at least 1 prompt token, 2 tokens and 1 round")
	}
	return o.modelOptions.check()
}

// benchReport is what bench prints with --json.
type benchReport struct {
	Model        string  `json:"model"`
	Library      string  `json:"library"`
	Device       string  `json:"device"`
	PromptTokens int     `json:"prompt_tokens"`
	Tokens       int     `json:"tokens"`
	Rounds       int     `json:"rounds"`
	Load         float64 `json:"load_s"`
	LoadRate     float64 `json:"load_bytes_per_s"`
	WeightBytes  int64   `json:"weight_bytes"`

	First  benchRound `json:"first_round"`
	Median benchRound `json:"median"`

	DevicePeak  int64 `json:"device_peak_bytes"`
	HostWeights int64 `json:"host_weight_bytes"`
	ProcessPeak int64 `json:"process_peak_bytes"`
}

type benchRound struct {
	FirstToken float64 `json:"time_to_first_token_s"`
	PromptRate float64 `json:"prompt_tokens_per_s"`
	DecodeRate float64 `json:"decode_tokens_per_s"`
}

func (a *app) runBench(ctx context.Context, o *benchOptions, s cli.Streams) (err error) {
	ctx, stop := cli.Interruptible(ctx, nil)
	defer stop()
	path := ""
	if o.random == "" {
		if path, err = o.Locate(ctx, s); err != nil {
			return err
		}
	}
	session, err := a.start(&o.modelOptions, s, func(e engine, settings runtime.ModelOptions) (model, error) {
		if o.random != "" {
			return e.LoadRandom(o.random, o.bits, settings)
		}
		return e.LoadModel(path, settings)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.close()) }()
	facts := session.Facts()
	if o.prompt+o.tokens > facts.MaxTokens {
		return fmt.Errorf("%d prompt tokens and %d new ones are more than the context of %d", o.prompt, o.tokens, facts.MaxTokens)
	}
	r := benchReport{
		Model: session.Name(), Library: describeLibrary(session.engine.Library()), Device: facts.Device.Device.String(),
		PromptTokens: o.prompt, Tokens: o.tokens, Rounds: o.rounds,
		Load: facts.LoadTime.Seconds(), LoadRate: float64(facts.WeightBytes) / facts.LoadTime.Seconds(), WeightBytes: facts.WeightBytes,
	}
	if gpu := session.engine.Library().GPU; gpu.Name != "" {
		r.Device += " " + gpu.Name
	}
	var rounds []benchRound
	for i := range o.rounds + 1 {
		round, err := session.benchRound(ctx, o, uint64(i))
		if err != nil {
			return err
		}
		rounds = append(rounds, round)
	}
	r.First = rounds[0]
	median := func(of func(benchRound) float64) float64 {
		var values []float64
		for _, round := range rounds[1:] {
			values = append(values, of(round))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	r.Median = benchRound{
		median(func(b benchRound) float64 { return b.FirstToken }),
		median(func(b benchRound) float64 { return b.PromptRate }),
		median(func(b benchRound) float64 { return b.DecodeRate }),
	}
	if m, err := session.Memory(); err == nil {
		r.DevicePeak, r.HostWeights = m.Peak, m.Host
	}
	r.ProcessPeak = host.PeakMemory()
	if o.json {
		return writeJSON(s.Out, r)
	}
	_, err = fmt.Fprintf(s.Out, "%s\n%s, %s\n"+
		"load     %.2f s, %s of weights, %.2f GB/s\n"+
		"first    %.1f tok/s prompt, %.1f tok/s decode, first token after %.3f s\n"+
		"median   %.1f tok/s prompt, %.1f tok/s decode, first token after %.3f s (%d prompt tokens, %d new ones, %s)\n"+
		"memory   process %s, arrays %s at most\n",
		r.Model, r.Device, r.Library, r.Load, cli.Bytes(r.WeightBytes), r.LoadRate/1e9,
		r.First.PromptRate, r.First.DecodeRate, r.First.FirstToken,
		r.Median.PromptRate, r.Median.DecodeRate, r.Median.FirstToken, r.PromptTokens, r.Tokens, count(r.Rounds, "round"),
		cli.Bytes(r.ProcessPeak), cli.Bytes(r.DevicePeak))
	return err
}

// benchRound answers a prompt that no other round has.
func (s *session) benchRound(ctx context.Context, o *benchOptions, round uint64) (benchRound, error) {
	random := rand.New(rand.NewPCG(1, round))
	prompt := make([]int32, o.prompt)
	for i := range prompt {
		prompt[i] = random.Int32N(1000)
	}
	prompt[0] = int32(round % 1000) // so that nothing of another round's state is of use
	a, err := s.answer(ctx, runtime.Request{Tokens: prompt, MaxTokens: o.tokens, IgnoreEOS: true}, func(string) error { return nil })
	if err != nil {
		return benchRound{}, err
	}
	f := figures{Summary: a.summary}
	return benchRound{f.firstToken().Seconds(), a.summary.PromptRate(), a.summary.DecodeRate()}, nil
}
