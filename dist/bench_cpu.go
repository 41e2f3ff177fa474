package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

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
	tools, err := p.buildTools(ctx)
	if err != nil {
		return err
	}
	bin := os.Getenv("MLXCEL_LLAMA_BIN") // a build of one's own
	if bin == "" {
		if bin, err = p.buildLlama(ctx, tools); err != nil {
			return err
		}
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
	return p.benchNative(ctx, tools)
}

// benchNative runs the native library's own benchmarks: batches, host cost,
// kernel times, precision.
func (p *project) benchNative(ctx context.Context, tools buildTools) error {
	build, err := p.buildLibrary(ctx, tools, native, modeRelease, "benchmarks")
	if err != nil {
		return err
	}
	programs, err := filepath.Glob(filepath.Join(build, "bench", "*_bench"))
	if err != nil {
		return err
	}
	for _, program := range programs {
		output, err := p.measure(ctx, program)
		if err != nil {
			return err
		}
		fmt.Printf("\n%s:\n\n%s", strings.TrimSuffix(filepath.Base(program), "_bench"), output)
	}
	return nil
}
