package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/models"
	"mlxcel/runtime"
)

// libraryOptions choose the library and the device.
type libraryOptions struct {
	runtime.Options
}

func (o *libraryOptions) define(f *pflag.FlagSet) {
	f.StringVar(&o.Bundle, "bundle", "", "`FOLDER` with the libraries; default: $MLXCEL_BUNDLE, or the folder lib beside mlxcel")
	f.Var(cli.NewChoice(&o.Backend, "auto", "native", "mlx"), "backend", "library to compute with")
	f.StringVar(&o.Device, "device", "auto", "`DEVICE` to compute on: auto, cpu, cuda, cuda:N for one of several GPUs, or a GPU's UUID")
	f.Float64Var(&o.GPUMemory, "gpu-memory", runtime.DefaultGPUMemory, "`SHARE` of a GPU's free memory that a model may take")
}

// check reports a value that is out of range.
func (o *libraryOptions) check() error {
	if o.GPUMemory <= 0 || o.GPUMemory > 1 {
		return fmt.Errorf("--gpu-memory is %v, want more than 0 and at most 1", o.GPUMemory)
	}
	return runtime.CheckDevice(o.Device)
}

// modelOptions choose what to load and where.
type modelOptions struct {
	libraryOptions
	models.Flags
	context int
	verbose bool
}

func defineVerbose(f *pflag.FlagSet, verbose *bool, usage string) {
	f.BoolVarP(verbose, "verbose", "v", false, usage)
}

// define defines the flags that say what to load.
func (o *modelOptions) define(f *pflag.FlagSet) { o.Flags.Define(f) }

// defineRest defines the flags that come last in the help.
func (o *modelOptions) defineRest(f *pflag.FlagSet) {
	f.IntVarP(&o.context, "context", "c", 0, "longest prompt and answer together, in `TOKENS`; default: what the model was trained for")
	f.IntVar(&o.Threads, "threads", 0, "`NUMBER` of CPU threads of the native library; default: one a physical core. MLX uses one")
	o.libraryOptions.define(f)
	defineVerbose(f, &o.verbose, "print more about what was loaded and how long things took")
}

func (o *modelOptions) check() error {
	switch {
	case o.context < 0:
		return fmt.Errorf("--context is %d, want at least 2, or 0 for what the model was trained for", o.context)
	case o.Threads < 0:
		return fmt.Errorf("--threads is %d, want at least 1, or 0 for the library's choice", o.Threads)
	}
	return o.libraryOptions.check()
}

// answerOptions say how an answer is chosen and when it ends.
type answerOptions struct {
	maxTokens int
	stop      []string
	ignoreEOS bool
	seed      uint64
	sampling  runtime.Sampling // its seed is not set
	flags     *pflag.FlagSet   // where they are defined
}

func (o *answerOptions) define(f *pflag.FlagSet) {
	o.flags = f
	s := &o.sampling
	f.IntVarP(&o.maxTokens, "max-tokens", "n", -1, "longest answer in `TOKENS`; -1: up to the end of the context")
	f.Float64Var(&s.Temperature, "temp", 0, "temperature `T`: 0 takes the most likely token always, more takes others more often")
	f.IntVar(&s.TopK, "top-k", 0, "choose among the `K` most likely tokens; 0: all")
	f.Float64Var(&s.TopP, "top-p", 1, "choose among the most likely tokens that have probability `P` together; 1: all")
	f.Float64Var(&s.MinP, "min-p", 0, "choose among the tokens that have `P` times the probability of the most likely one; 0: all")
	f.Uint64Var(&o.seed, "seed", 0, "`SEED` of the random choices; default: another one every time (-v prints it)")
	f.Float64Var(&s.RepetitionPenalty, "repetition-penalty", 1, "make tokens seen before less likely by `FACTOR`; 1: do not")
	f.Float64Var(&s.PresencePenalty, "presence-penalty", 0, "take `X` off the logits of tokens seen before")
	f.Float64Var(&s.FrequencyPenalty, "frequency-penalty", 0, "take `X` off the logits of tokens for each time they were seen")
	f.IntVar(&s.PenaltyWindow, "penalty-window", 64, "how many `TOKENS` back the penalties look, the prompt included")
	f.StringArrayVar(&o.stop, "stop", nil, "end the answer before `TEXT`; may be repeated")
	f.BoolVar(&o.ignoreEOS, "ignore-eos", false, "do not end the answer where the model ends it")
}

// check reports a value that is out of range.
func (o *answerOptions) check() error {
	if o.maxTokens == 0 || o.maxTokens < -1 {
		return fmt.Errorf("--max-tokens is %d, want at least 1, or -1 for no limit", o.maxTokens)
	}
	if o.sampling.PenaltyWindow == 0 {
		return errors.New("--penalty-window is 0, want at least 1")
	}
	if slices.Contains(o.stop, "") {
		return errors.New("--stop is empty, want a text")
	}
	return o.sampling.Check(0)
}

// request fills in how to answer. Where no seed is given, it takes a new one.
func (o *answerOptions) request(r *runtime.Request) {
	r.MaxTokens, r.Stop, r.IgnoreEOS, r.Sampling = max(o.maxTokens, 0), o.stop, o.ignoreEOS, o.sampling
	switch {
	case o.sampling.Temperature == 0: // nothing is random
	case o.flags.Changed("seed"):
		r.Sampling.Seed = o.seed
	default:
		r.Sampling.Seed = uint64(rand.Uint32()) // short enough to be typed
	}
}
