package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"mlxcel/tests/testenv"
)

// llamaRun is an entry of what llama-bench prints as JSON.
type llamaRun struct {
	Prompt int     `json:"n_prompt"`
	New    int     `json:"n_gen"`
	Depth  int     `json:"n_depth"`
	Rate   float64 `json:"avg_ts"` // tokens per second
}

// llamaRate measures one thing with llama-bench.
func (p *project) llamaRate(ctx context.Context, bin string, threads int, args ...string) (float64, error) {
	all := append([]string{"-m", p.bin("models", testenv.ModelFile), "-r", "1", "-o", "json", "-t", strconv.Itoa(threads)}, args...)
	output, err := p.measure(ctx, filepath.Join(bin, "llama-bench"), all...)
	if err != nil {
		return 0, err
	}
	var runs []llamaRun
	if err := json.Unmarshal(output, &runs); err != nil {
		return 0, fmt.Errorf("llama-bench printed no JSON: %w", err)
	}
	if len(runs) != 1 {
		return 0, fmt.Errorf("llama-bench printed %d results, not one", len(runs))
	}
	return runs[0].Rate, nil
}

// A contest is one thing to measure on both sides, in tokens per second.
type contest struct {
	name   string
	ours   func() (float64, error)
	theirs func() (float64, error)
}

// benchCPU compares the native library with llama.cpp, built for this processor.
func (p *project) benchCPU(ctx context.Context, rounds int) error {
	tools, err := p.buildTools(ctx, hostTarget())
	if err != nil {
		return err
	}
	bin, err := p.llama(ctx, tools)
	if err != nil {
		return err
	}
	cores := runtime.NumCPU()
	decode := func(threads, depth int) func() (float64, error) {
		return func() (float64, error) {
			a, err := p.generate(ctx, "native", max(depth, 1), 64, "--threads", strconv.Itoa(threads))
			return a.Timings.Decode, err
		}
	}
	prefill := func(threads, tokens int) func() (float64, error) {
		return func() (float64, error) {
			a, err := p.generate(ctx, "native", tokens, 1, "--threads", strconv.Itoa(threads))
			return a.Timings.Prompt, err
		}
	}
	llama := func(threads int, args ...string) func() (float64, error) {
		return func() (float64, error) { return p.llamaRate(ctx, bin, threads, args...) }
	}
	var contests []contest
	for _, threads := range []int{1, cores} {
		contests = append(contests,
			contest{fmt.Sprintf("decode 64, %d threads", threads), decode(threads, 0), llama(threads, "-p", "0", "-n", "64")},
			contest{fmt.Sprintf("prefill 512, %d threads", threads), prefill(threads, 512), llama(threads, "-p", "512", "-n", "0")})
	}
	for _, depth := range []int{1024, 4096} {
		contests = append(contests, contest{fmt.Sprintf("decode 64 after %d tokens, %d threads", depth, cores),
			decode(cores, depth), llama(cores, "-p", "0", "-n", "64", "-d", strconv.Itoa(depth))})
	}
	contests = append(contests, contest{fmt.Sprintf("decode, 8 rows together, %d threads", cores),
		func() (float64, error) { return p.measurement(ctx, "^TestBatchRate$", "rows together: ") }, func() (float64, error) { return p.llamaBatchRate(ctx, bin, cores) }})
	fmt.Printf("\nSmolLM2-135M-Instruct, 4 bit, tok/s; medians of %d, in turns with llama.cpp of llama-cpp-python %s\n\n", rounds, p.lock.Llama.Version)
	fmt.Printf("| | mlxcel, backend native | llama.cpp | ratio |\n|---|---|---|---|\n")
	for _, c := range contests {
		var ours, theirs []float64
		for range rounds {
			a, err := c.ours()
			if err != nil {
				return err
			}
			b, err := c.theirs()
			if err != nil {
				return err
			}
			ours, theirs = append(ours, a), append(theirs, b)
		}
		self := func(f float64) float64 { return f }
		a, b := median(ours, self), median(theirs, self)
		fmt.Printf("| %s | %.1f | %.1f | %.2f |\n", c.name, a, b, a/b)
	}
	if err := p.benchStart(ctx, bin, rounds); err != nil {
		return err
	}
	if err := p.benchNative(ctx, tools); err != nil {
		return err
	}
	return p.benchPrecision(ctx)
}

// benchStart times whole processes that load the model and compute one token, files being in the system's cache, and
// what a step costs besides kernels.
func (p *project) benchStart(ctx context.Context, bin string, rounds int) error {
	wall := func(f func() error) (time.Duration, error) {
		start := time.Now()
		err := f()
		return time.Since(start), err
	}
	var ours, theirs []time.Duration
	for range rounds + 1 {
		a, err := wall(func() error { _, err := p.generate(ctx, "native", 1, 1); return err })
		if err != nil {
			return err
		}
		b, err := wall(func() error {
			_, err := p.llamaRate(ctx, bin, runtime.NumCPU(), "-p", "1", "-n", "0", "--no-warmup")
			return err
		})
		if err != nil {
			return err
		}
		ours, theirs = append(ours, a), append(theirs, b)
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	a, b := median(ours[1:], ms), median(theirs[1:], ms) // the first ones warm the cache
	fmt.Printf("\nFrom the start of a process to the end of one that computed a token: mlxcel %.0f ms, llama-bench %.0f ms\n", a, b)
	cost, err := p.measurement(ctx, "^TestHostCost$", "a step of a tiny model: ")
	if err != nil {
		return err
	}
	fmt.Printf("A decode step of a model of two layers of width 64, everything included: %.1f us\n", cost)
	return nil
}

// benchPrecision measures how far the native library, and mlx-lm's bfloat16, are
// from an f32 computation.
func (p *project) benchPrecision(ctx context.Context) error {
	cmd := p.goTool(ctx, "test", "-count=1", "-run", "^TestPrecision$", "-v", "./runtime/engine")
	cmd.Env = append(cmd.Env, "MLXCEL_TEST_STRICT=1", "MLXCEL_TEST_LONG=1", "MLXCEL_CACHE="+p.cache, "MLXCEL_BUNDLE="+p.bin("lib"))
	output, err := capture(cmd)
	if err != nil {
		return p.failure(cmd, output, "the test of precision", err)
	}
	fmt.Print("\nPrecision:\n\n")
	for line := range strings.Lines(output) {
		if _, figures, ok := strings.Cut(line, ": native against"); ok {
			fmt.Print("native against", figures)
		}
	}
	if err := p.setupTests(ctx, true); err != nil {
		return err
	}
	peer, err := p.measure(ctx, filepath.Join(p.venv("test"), "bin", "python"), filepath.Join(p.root, "tests", "bench", "precision_peer.py"),
		p.bin("models", testenv.ModelFile), filepath.Join(p.cache, "models", "SmolLM2-135M-Instruct-mlx"), filepath.Join(p.root, "RATIONALE.md"), "24")
	if err != nil {
		return err
	}
	fmt.Printf("mlx-lm in bfloat16 against f32, on the CPU: %s", peer)
	return nil
}

// measurement runs a test of the engine that measures, and returns the number that it logs behind a text.
func (p *project) measurement(ctx context.Context, test, text string) (float64, error) {
	cmd := p.goTool(ctx, "test", "-count=1", "-run", test, "-v", "./runtime/engine")
	cmd.Env = append(cmd.Env, "MLXCEL_BENCH=1", "MLXCEL_TEST_STRICT=1", "MLXCEL_CACHE="+p.cache, "MLXCEL_BUNDLE="+p.bin("lib"))
	output, err := capture(cmd)
	if err != nil {
		return 0, p.failure(cmd, output, "the measurement", err)
	}
	_, figures, _ := strings.Cut(output, text)
	figure, _, _ := strings.Cut(figures, " ")
	return strconv.ParseFloat(figure, 64)
}

func (p *project) llamaBatchRate(ctx context.Context, bin string, threads int) (float64, error) {
	output, err := p.measure(ctx, filepath.Join(bin, "llama-batched-bench"), "-m", p.bin("models", testenv.ModelFile), "-c", "4096",
		"-npp", "4", "-ntg", "128", "-npl", "8", "-t", strconv.Itoa(threads), "--output-format", "jsonl")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(output)) {
		var row struct {
			Rate float64 `json:"speed_tg"`
		}
		if json.Unmarshal([]byte(line), &row) == nil && row.Rate > 0 {
			return row.Rate, nil
		}
	}
	return 0, errors.New("llama-batched-bench printed no rate")
}

// benchNative runs the native library's own benchmarks: matrix products, and
// the kernels of whole steps.
func (p *project) benchNative(ctx context.Context, tools buildTools) error {
	build, err := p.buildLibrary(ctx, tools, native, modeRelease, "benchmarks")
	if err != nil {
		return err
	}
	for _, run := range []string{
		"matmul_bench",
		"step_bench 1 0 200", "step_bench 1 1024 200", "step_bench 1 4096 100", "step_bench 1 0 100 8", "step_bench 512 0 10",
	} {
		words := strings.Fields(run)
		cmd := process(ctx, p.root, filepath.Join(build, "bench", words[0]), words[1:]...)
		cmd.Env = append(cmd.Environ(), "MLXCEL_PROFILE=1")
		output, err := p.stdout(cmd)
		if err != nil {
			return err
		}
		fmt.Printf("\n%s:\n\n%s", run, output)
	}
	return nil
}
