package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/host"
	"mlxcel/runtime"
	"mlxcel/tests/goldens"
)

const selftestHelp = `
Computes with small models that are built in, compares every token with what the
reference implementation (mlx-lm) computed, and measures how fast this machine is.
It takes about a minute, prints a report and writes it to a file. The report tells
about the machine, and has no names and no paths of yours. The exit code is 1 if a
token differs.`

const selftestExample = `
mlxcel selftest
mlxcel selftest --device cuda --report rtx4070.txt`

type selftestOptions struct {
	modelOptions
	report string
}

func (a *app) selftest(f *pflag.FlagSet) cli.Run {
	o := &selftestOptions{}
	o.modelOptions.define(f)
	f.StringVar(&o.report, "report", "mlxcel-selftest.txt", "`FILE` to write the report to")
	o.modelOptions.defineRest(f)
	return func(ctx context.Context, _ []string, s cli.Streams) error {
		if err := o.check(); err != nil {
			return cli.Usagef("%v", err)
		}
		return a.runSelftest(ctx, o, s)
	}
}

func (a *app) runSelftest(ctx context.Context, o *selftestOptions, s cli.Streams) error {
	ctx, stop := cli.Interruptible(ctx, nil)
	defer stop()
	began := time.Now()
	r := &selftestReport{}
	err := r.run(ctx, a, o, s)
	if errors.Is(err, cli.ErrInterrupted) {
		return err
	}
	r.section("result")
	switch {
	case err != nil:
		r.row("stopped", "%s", withoutPaths(err))
	case r.wrong > 0:
		r.row("failed", "%s wrong", count(r.wrong, "model"))
		err = errors.New("what was computed is wrong: please report it, with the report")
	default:
		r.row("passed", "every token is right")
	}
	r.row("time", "%.0f s", time.Since(began).Seconds())
	text := r.text()
	if _, writeErr := s.Out.Write(text); writeErr != nil {
		return fmt.Errorf("the report cannot be written: %w", writeErr)
	}
	if writeErr := os.WriteFile(o.report, text, 0o644); writeErr != nil {
		return errors.Join(err, fmt.Errorf("the report cannot be written: %w: name another file with --report", writeErr))
	}
	fmt.Fprintf(s.Err, "The report is in %s; it has no names and no paths of yours.\n", filepath.FromSlash(o.report))
	return err
}

// withoutPaths is what may be told of an error: its kind, since its text may name folders.
func withoutPaths(err error) string {
	if open := (*runtime.OpenError)(nil); errors.As(err, &open) {
		return fmt.Sprintf("the library cannot be opened: [%s]", open.Code)
	}
	return "an error that is not repeated here, as it may hold names of folders"
}

// selftestReport is a report in the making.
type selftestReport struct {
	table bytes.Buffer
	wrong int // models with a wrong token
}

func (r *selftestReport) section(name string) { fmt.Fprintf(&r.table, "%s\t\n", name) }

func (r *selftestReport) row(name, format string, args ...any) {
	fmt.Fprintf(&r.table, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
}

func (r *selftestReport) text() []byte {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = t.Write(r.table.Bytes())
	t.Flush()
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

func (r *selftestReport) run(ctx context.Context, a *app, o *selftestOptions, s cli.Streams) (err error) {
	r.machine(a.probeDriver())
	e, err := a.open(o.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	facts, err := e.Device()
	if err != nil {
		return err
	}
	r.library(e.Library(), facts)

	r.section("goldens")
	models, err := goldenModels()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "mlxcel-selftest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for _, name := range models {
		fmt.Fprintf(s.Err, "computing with %s\n", name)
		if err := r.tiny(ctx, e, facts, folder, name); err != nil {
			return err
		}
	}
	return r.own(ctx, a, e, facts, o, s)
}

// machine tells what it runs on.
func (r *selftestReport) machine(driver runtime.Driver) {
	h := host.Look()
	r.section("machine")
	r.row("version", "%s", cli.VersionLine("mlxcel"))
	r.row("system", "%s", h.System)
	r.row("cpu", "%s, %s: %s", h.CPU, count(h.Threads, "thread"), strings.Join(h.Features, " "))
	r.row("memory", "%s", cli.Bytes(h.Total))
	switch {
	case driver.Code != "":
		r.row("nvidia", "[%s]", driver.Code)
	default:
		r.row("nvidia", "driver for CUDA up to %s", driver.CUDAVersion())
	}
	for _, g := range driver.GPUs {
		r.row("gpu", "%s, compute capability %s, %s", g.Name, g.Capability(), cli.Bytes(g.Memory))
	}
}

func (r *selftestReport) library(l runtime.Library, facts runtime.DeviceFacts) {
	r.row("library", "%s", describeLibrary(l))
	name := "the CPU"
	if facts.Device != runtime.DeviceCPU {
		name = l.GPU.Name
	}
	r.row("uses", "%s%s", name, deviceMemory(facts))
	for _, skipped := range l.Skipped {
		r.row("", "not another library: [%s]", skipped.Code)
	}
}

// goldenModels are the names of the models that are built in.
func goldenModels() ([]string, error) {
	entries, err := fs.ReadDir(goldens.Models, "tiny")
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// tiny compares a model that is built in.
func (r *selftestReport) tiny(ctx context.Context, e engine, facts runtime.DeviceFacts, folder, name string) error {
	files, err := fs.Sub(goldens.Models, path.Join("tiny", name))
	if err != nil {
		return err
	}
	dir := filepath.Join(folder, name)
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	text, err := fs.ReadFile(files, "golden.json")
	if err != nil {
		return err
	}
	m, err := e.LoadModel(dir, runtime.ModelOptions{Slots: 1})
	if err != nil {
		return err
	}
	return r.compare(ctx, m, facts, name, text, 0)
}

// compare runs the cases of a golden, those with prompts of at most so many tokens unless that is 0, and adds a row.
func (r *selftestReport) compare(ctx context.Context, m model, facts runtime.DeviceFacts, name string, text []byte, longest int) error {
	var g goldens.Golden
	if err := json.Unmarshal(text, &g); err != nil {
		return err
	}
	// On the CPU everything is computed in f32, and all tokens are equal. On a GPU it is the model's own type, whose
	// rounding may decide between two tokens of nearly the same logit.
	tolerance := 0.0
	if facts.Device != runtime.DeviceCPU {
		tolerance = map[string]float64{"f16": 0.06, "bf16": 0.5}[g.DType]
	}
	tokens, near := 0, 0
	for _, c := range g.Exact() {
		if longest > 0 && len(c.PromptIDs) > longest {
			continue
		}
		answer, err := (&session{model: m}).answer(ctx, runtime.Request{Tokens: c.PromptIDs, MaxTokens: len(c.IDs), IgnoreEOS: true},
			func(string) error { return nil })
		if err != nil {
			return err
		}
		for i, want := range c.IDs {
			if i < len(answer.tokens) && answer.tokens[i] == want {
				tokens++
				continue
			}
			if c.Margins[i] < tolerance {
				near++ // what follows is another text
				break
			}
			r.wrong++
			r.row(name, "WRONG: prompt %s, token %d of %d, where the margin is %.3f", c.Name, i+1, len(c.IDs), c.Margins[i])
			return nil
		}
	}
	rounding := ""
	if near > 0 {
		rounding = fmt.Sprintf(", until rounding decided otherwise in %s", count(near, "prompt"))
	}
	r.row(name, "%s right%s", count(tokens, "token"), rounding)
	return nil
}

const (
	defaultGolden = "SmolLM2-135M-Instruct.Q4_1"
	longestPrompt = 60 // tokens
	benchPrompt   = 512
	benchTokens   = 64
	benchRounds   = 3
)

// own compares the model of this machine, if it is the default one, and measures it; on a GPU a larger one, too.
func (r *selftestReport) own(ctx context.Context, a *app, e engine, facts runtime.DeviceFacts, o *selftestOptions, s cli.Streams) error {
	type run struct {
		name string
		load func() (model, error)
	}
	var runs []run
	modelPath, _, _, err := o.Find() // what is not here is not downloaded for this
	if err == nil && modelPath == "" {
		modelPath, err = a.defaultModel()
	}
	if err == nil {
		m, err := e.LoadModel(modelPath, runtime.ModelOptions{Slots: 1})
		if err != nil {
			return err
		}
		if m.Name() == defaultGolden {
			fmt.Fprintf(s.Err, "computing with %s\n", defaultGolden)
			if err := r.compare(ctx, m, facts, defaultGolden, goldens.Default, longestPrompt); err != nil {
				return err
			}
		}
		name := "your model"
		if i, err := a.inspectModel(modelPath); err == nil {
			name = fmt.Sprintf("%s, %s parameters", i.Family, formatCount(i.Parameters))
		}
		runs = append(runs, run{name, func() (model, error) { return m, nil }})
	}
	if facts.Device != runtime.DeviceCPU || len(runs) == 0 {
		runs = append(runs, run{"qwen3, 0.6 billion parameters made up, 4 bit", func() (model, error) {
			return e.LoadRandom("0.6b", 4, runtime.ModelOptions{Slots: 1})
		}})
	}
	r.section("speed")
	for _, run := range runs {
		fmt.Fprintf(s.Err, "measuring %s\n", run.name)
		m, err := run.load()
		if err != nil {
			return err
		}
		if err := r.measure(ctx, m, run.name); err != nil {
			return err
		}
	}
	return nil
}

// measure adds a row with the speed of a model: that of the first round, in which kernels may be compiled, and of the best.
func (r *selftestReport) measure(ctx context.Context, m model, name string) error {
	o := &benchOptions{prompt: min(benchPrompt, m.Facts().MaxTokens/2), tokens: benchTokens}
	var first, best benchRound
	for i := range uint64(benchRounds) {
		round, err := (&session{model: m}).benchRound(ctx, o, i)
		if err != nil {
			return err
		}
		if i == 0 {
			first = round
		}
		best.PromptRate, best.DecodeRate = max(best.PromptRate, round.PromptRate), max(best.DecodeRate, round.DecodeRate)
	}
	r.row(name, "%d prompt tokens at %.1f tok/s, %d new ones at %.1f tok/s; the first token ever after %.2f s",
		o.prompt, best.PromptRate, o.tokens, best.DecodeRate, first.FirstToken)
	return nil
}
