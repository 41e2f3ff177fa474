package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
)

const inspectHelp = `
Reads only the description of the model, not its weights, and opens no library.
Memory is that on the CPU. --program prints instead what is computed in a step, as
it is handed to the library: for so many tokens at once, of which the last one gets
logits. --stages loads the model, and prints what the library makes of that.`

const inspectExample = `
mlxcel inspect -m path/to/model
mlxcel inspect -m model.gguf --program --tokens 64
mlxcel inspect --stages --backend native`

type inspectOptions struct {
	modelOptions
	program bool
	stages  bool
	tokens  int
	json    bool
}

func (a *app) inspect(f *pflag.FlagSet) cli.Run {
	var o inspectOptions
	o.Flags.Define(f)
	f.BoolVar(&o.program, "program", false, "print the recorded program of a step")
	f.BoolVar(&o.stages, "stages", false, "load the model and print how the library runs a step")
	f.IntVar(&o.tokens, "tokens", 1, "`TOKENS` that the step of --program or --stages computes")
	f.BoolVar(&o.json, "json", false, "print one JSON object; sizes are in bytes")
	o.libraryOptions.define(f)
	return func(ctx context.Context, _ []string, s cli.Streams) error {
		switch {
		case f.Changed("tokens") && !o.program && !o.stages:
			return cli.Usagef("--tokens is for --program and --stages")
		case o.stages && (o.program || o.json):
			return cli.Usagef("--stages goes with neither --program nor --json")
		case o.tokens < 1:
			return cli.Usagef("--tokens is %d, want at least 1", o.tokens)
		}
		if err := o.libraryOptions.check(); err != nil {
			return cli.Usagef("%v", err)
		}
		return a.runInspect(ctx, o, s)
	}
}

func (a *app) runInspect(ctx context.Context, o inspectOptions, s cli.Streams) error {
	if o.stages {
		return a.printStages(ctx, o, s)
	}
	path, err := o.Locate(ctx, s)
	if err != nil {
		return err
	}
	w := s.Out
	i, err := a.inspectModel(path)
	if err != nil {
		return err
	}
	var program string
	if o.program {
		if program, err = i.Program(o.tokens, 1); err != nil {
			return err
		}
	}
	need, err := i.MemoryNeed()
	if err != nil {
		return err
	}
	switch {
	case o.json:
		return writeJSON(w, jsonInspection(i, need, program))
	case o.program:
		_, err = fmt.Fprintln(w, strings.TrimSuffix(program, "\n"))
	default:
		err = printInspection(w, i, need)
	}
	if err != nil {
		return fmt.Errorf("the answer cannot be written: %w", err)
	}
	return nil
}

func (a *app) printStages(ctx context.Context, o inspectOptions, s cli.Streams) (err error) {
	session, err := a.load(ctx, &o.modelOptions, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.close()) }()
	text, err := session.Stages(o.tokens)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(s.Out, text); err != nil {
		return fmt.Errorf("the answer cannot be written: %w", err)
	}
	return nil
}

func printInspection(w io.Writer, i *runtime.Inspection, need runtime.MemoryNeed) error {
	c := i.Config
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	row("model", "%s", i.Name)
	row("path", "%s (%s)", i.Path, i.Format)
	row("family", "%s", i.Family)
	row("parameters", "%s, %s in files", formatCount(i.Parameters), cli.Bytes(i.StoredBytes))
	row("weights", "%s", formats(i.Formats))
	row("layers", "%d of width %d, %d heads, %d for keys and values", c.Layers, c.Hidden, c.Heads, c.KVHeads)
	if c.Experts > 0 {
		row("experts", "%d, of which %d for each token", c.Experts, c.ExpertsPerToken)
	}
	row("vocabulary", "%d tokens", c.Vocabulary)
	row("context", "%s", contextLength(c.MaxPositions))
	row("tokenizer", "%s", yesNo(i.HasTokenizer, "yes", "no: takes token ids only"))
	row("chat template", "%s", yesNo(i.HasTemplate, "yes", "no: give prompts with --no-chat-template"))
	row("end tokens", "%s", strings.Trim(fmt.Sprint(i.EOS), "[]"))
	row("memory", "%s for weights, %s for 1024 tokens of context", cli.Bytes(need.Weights), cli.Bytes(need.StatePer1k))
	if need.StateOfFull > 0 {
		row("", "%s in all with a full context", cli.Bytes(need.Weights+need.StateOfFull))
	}
	return t.Flush()
}

// formats lists how many tensors have which format, the most frequent first.
func formats(count map[string]int) string {
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		if d := count[b] - count[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d × %s", count[name], name)
	}
	return strings.Join(names, ", ")
}

func contextLength(n int) string {
	if n == 0 {
		return "of no given length"
	}
	return fmt.Sprintf("%d tokens", n)
}

func yesNo(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

// formatCount writes a large number in short.
func formatCount(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f billion", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f million", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}

// inspection is the object that inspect --json prints.
type inspection struct {
	Name            string         `json:"name"`
	Path            string         `json:"path"`
	Format          string         `json:"format"`
	Family          string         `json:"family"`
	Parameters      int64          `json:"parameters"`
	StoredBytes     int64          `json:"stored_bytes"`
	Tensors         map[string]int `json:"tensors_by_format"`
	Layers          int            `json:"layers"`
	Hidden          int            `json:"hidden_size"`
	Heads           int            `json:"heads"`
	KVHeads         int            `json:"kv_heads"`
	Experts         int            `json:"experts,omitempty"`
	ExpertsPerToken int            `json:"experts_per_token,omitempty"`
	Vocabulary      int            `json:"vocabulary"`
	Context         int            `json:"context_tokens"`
	HasTokenizer    bool           `json:"has_tokenizer"`
	HasTemplate     bool           `json:"has_chat_template"`
	EndTokens       []int32        `json:"end_token_ids"`
	Memory          struct {
		Weights     int64 `json:"weights_bytes"`
		StatePer1k  int64 `json:"state_bytes_per_1024_tokens"`
		StateOfFull int64 `json:"state_bytes_of_full_context"`
	} `json:"memory"`
	Program string `json:"program,omitempty"`
}

func jsonInspection(i *runtime.Inspection, need runtime.MemoryNeed, program string) inspection {
	c := i.Config
	o := inspection{
		Name: i.Name, Path: i.Path, Format: i.Format, Family: i.Family,
		Parameters: i.Parameters, StoredBytes: i.StoredBytes, Tensors: i.Formats,
		Layers: c.Layers, Hidden: c.Hidden, Heads: c.Heads, KVHeads: c.KVHeads,
		Experts: c.Experts, ExpertsPerToken: c.ExpertsPerToken, Vocabulary: c.Vocabulary, Context: c.MaxPositions,
		HasTokenizer: i.HasTokenizer, HasTemplate: i.HasTemplate, EndTokens: append([]int32{}, i.EOS...), Program: program,
	}
	o.Memory.Weights, o.Memory.StatePer1k, o.Memory.StateOfFull = need.Weights, need.StatePer1k, need.StateOfFull
	return o
}
