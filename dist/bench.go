package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"mlxcel/tests/testenv"
)

// bench is the subcommand bench: mlxcel and a peer on the same model and
// machine, in turns, as a table of medians on stdout. `bench` is the library on
// MLX beside mlx-lm, `bench cpu` the native one beside llama.cpp, `bench server`
// the server beside llama-server.
func bench(ctx context.Context, p *project, args []string) error {
	run := p.benchMLX
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := flags.Int("rounds", 5, "runs of each side; the tables show medians")
	switch {
	case len(args) > 0 && args[0] == "cpu":
		run, args = p.benchCPU, args[1:]
	case len(args) > 0 && args[0] == "server":
		var b serverBench
		flags.StringVar(&b.clients, "clients", "1,2,4,8,16,32", "numbers of clients")
		flags.DurationVar(&b.time, "time", time.Minute, "how long, for each number of clients and side")
		flags.IntVar(&b.tokens, "tokens", 64, "length of answers")
		run = func(ctx context.Context, rounds int) error { return p.benchServer(ctx, rounds, b) }
		args = args[1:]
	}
	if err := parseFlags(p, flags, args); err != nil {
		return err
	}
	if *rounds < 1 {
		p.say("--rounds is %d, want 1 or more", *rounds)
		return errUsage
	}
	if err := p.setup(ctx); err != nil {
		return err
	}
	p.describeMachine(ctx)
	return run(ctx, *rounds)
}

// describeMachine prints what the figures were measured on.
func (p *project) describeMachine(ctx context.Context) {
	processor := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				processor = strings.TrimSpace(value)
				break
			}
		}
	}
	var sets []string
	has := processorFlags()
	for _, set := range []string{"avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile"} {
		if has[set] {
			sets = append(sets, set)
		}
	}
	commit, _ := capture(process(ctx, p.root, "git", "describe", "--always", "--dirty"))
	fmt.Printf("%s, %s, %d cores (%s), %s, commit %s\n", time.Now().Format(time.DateOnly), processor, runtime.NumCPU(),
		strings.Join(sets, " "), runtime.Version(), strings.TrimSpace(commit))
}

// figures are what both sides report of a run.
type figures struct {
	Prompt float64 `json:"prompt_tokens_per_s"`
	Decode float64 `json:"decode_tokens_per_s"`
	Peak   float64 `json:"process_peak_bytes"`
}

// median of one of the figures of several runs.
func median[T any](runs []T, of func(T) float64) float64 {
	var values []float64
	for _, r := range runs {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// answerJSON is what `mlxcel generate --json` prints, as far as it is used here.
type answerJSON struct {
	PromptIDs []int32 `json:"prompt_token_ids"`
	IDs       []int32 `json:"token_ids"`
	Timings   struct {
		Prompt float64 `json:"prompt_tokens_per_s"`
		Decode float64 `json:"decode_tokens_per_s"`
		Load   float64 `json:"load_s"`
		First  float64 `json:"time_to_first_token_s"`
	} `json:"timings"`
	Memory struct {
		Process float64 `json:"process_peak_bytes"`
	} `json:"memory"`
}

// generate runs mlxcel on a prompt of that many tokens, plain text, for n tokens.
func (p *project) generate(ctx context.Context, backend string, promptTokens, n int, more ...string) (answerJSON, error) {
	// " the" is one token of the default model.
	args := []string{"generate", "--backend", backend, "-m", p.bin("models", testenv.ModelFile), "--no-chat-template", "--ignore-eos", "--json",
		"-n", fmt.Sprint(n), "-p", strings.Repeat(" the", promptTokens)}
	var answer answerJSON
	output, err := p.measure(ctx, p.bin("mlxcel"), append(args, more...)...)
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(output, &answer); err != nil {
		return answer, fmt.Errorf("mlxcel printed no JSON: %w", err)
	}
	if len(answer.PromptIDs) != promptTokens || len(answer.IDs) != n {
		return answer, fmt.Errorf("mlxcel took %d prompt tokens and gave %d, not %d and %d", len(answer.PromptIDs), len(answer.IDs), promptTokens, n)
	}
	return answer, nil
}

// measure runs a program and returns its stdout.
func (p *project) measure(ctx context.Context, name string, args ...string) ([]byte, error) {
	return p.stdout(process(ctx, p.root, name, args...))
}

// stdout runs cmd and returns what it writes there.
func (p *project) stdout(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, p.failure(cmd, errs.String(), filepath.Base(cmd.Path), err)
	}
	return out.Bytes(), nil
}

// benchMLX compares the library on MLX with mlx-lm, and with a C++ loop over the
// same MLX ops.
func (p *project) benchMLX(ctx context.Context, rounds int) error {
	if err := p.setupTests(ctx, true); err != nil {
		return err
	}
	const promptTokens, n = 64, 32
	python := filepath.Join(p.venv("test"), "bin", "python")
	script := filepath.Join(p.root, "tests", "bench", "mlx_lm_peer.py")
	folder := filepath.Join(p.cache, "models", "SmolLM2-135M-Instruct-mlx")
	var ours []answerJSON
	var theirs []figures
	for i := range rounds {
		p.say("round %d of %d", i+1, rounds)
		a, err := p.generate(ctx, "mlx", promptTokens, n)
		if err != nil {
			return err
		}
		ours = append(ours, a)
		output, err := p.measure(ctx, python, script, p.bin("models", testenv.ModelFile), folder, fmt.Sprint(promptTokens), fmt.Sprint(n))
		if err != nil {
			return err
		}
		var f figures
		if err := json.Unmarshal(output, &f); err != nil {
			return fmt.Errorf("%s printed no JSON: %w", script, err)
		}
		theirs = append(theirs, f)
	}
	fmt.Printf("\nSmolLM2-135M-Instruct, 4 bit, f32 activations; %d prompt tokens, %d new ones; medians of %d\n\n", promptTokens, n, rounds)
	fmt.Printf("| | mlxcel, backend mlx | mlx-lm %s | ratio |\n|---|---|---|---|\n", p.pinned("mlx-lm"))
	row := func(what string, a, b float64) { fmt.Printf("| %s | %.1f | %.1f | %.2f |\n", what, a, b, a/b) }
	row("prefill, tok/s", median(ours, func(a answerJSON) float64 { return a.Timings.Prompt }), median(theirs, func(f figures) float64 { return f.Prompt }))
	row("decode, tok/s", median(ours, func(a answerJSON) float64 { return a.Timings.Decode }), median(theirs, func(f figures) float64 { return f.Decode }))
	row("peak memory of the process, MB", median(ours, func(a answerJSON) float64 { return a.Memory.Process / 1e6 }), median(theirs, func(f figures) float64 { return f.Peak / 1e6 }))
	if err := p.benchVersion(ctx); err != nil {
		return err
	}
	return p.benchStep(ctx, rounds)
}

// pinned is the version of a Python package in the lock.
func (p *project) pinned(name string) string {
	for _, pin := range p.lock.Python.Long {
		if n, version, _ := strings.Cut(pin, "=="); n == name {
			return version
		}
	}
	return ""
}

// benchVersion times `mlxcel --version`, which opens no library.
func (p *project) benchVersion(ctx context.Context) error {
	var times []time.Duration
	for range 21 {
		start := time.Now()
		if _, err := p.measure(ctx, p.bin("mlxcel"), "--version"); err != nil {
			return err
		}
		times = append(times, time.Since(start))
	}
	fmt.Printf("\n`mlxcel --version`: %.1f ms\n", median(times, func(d time.Duration) float64 { return d.Seconds() * 1000 }))
	return nil
}

// benchStep runs the C++ comparison of mlxshim/bench/step.cpp.
func (p *project) benchStep(ctx context.Context, rounds int) error {
	tools, err := p.buildTools(ctx, hostTarget())
	if err != nil {
		return err
	}
	build, err := p.buildLibrary(ctx, tools, shim, modeRelease, "bench_step")
	if err != nil {
		return err
	}
	output, err := p.measure(ctx, filepath.Join(build, "bench", "bench_step"), fmt.Sprint(max(20, rounds)))
	if err != nil {
		return err
	}
	fmt.Printf("\nA decode step through the ABI beside a C++ loop over the same MLX ops:\n\n%s", output)
	return nil
}
