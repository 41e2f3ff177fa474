package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"mlxcel/tests/testenv"
)

// serverBench is what `bench server` measures.
type serverBench struct {
	clients string        // numbers of them, as words
	time    time.Duration // for each number and side
	tokens  int           // of an answer
}

// Both servers keep that many sequences, in a cache of that many tokens.
const (
	serverSlots = 8
	serverCache = 8 * 2048
)

// loadFigures are what tests/server/load prints of a number of clients.
type loadFigures struct {
	Clients  int      `json:"clients"`
	Requests int      `json:"requests"`
	Failed   int      `json:"failed"`
	Errors   []string `json:"errors"`
	Rate     float64  `json:"tokens_per_s"`
	FirstP50 float64  `json:"first_token_p50_ms"`
	FirstP99 float64  `json:"first_token_p99_ms"`
	GapP50   float64  `json:"inter_token_p50_ms"`
	GapP99   float64  `json:"inter_token_p99_ms"`
	Growth   float64  `json:"memory_growth_bytes"`
}

// benchServer compares mlxcel-server with llama-server, both running all the
// time and asked in turns.
func (p *project) benchServer(ctx context.Context, rounds int, b serverBench) error {
	tools, err := p.buildTools(ctx, hostTarget())
	if err != nil {
		return err
	}
	llama, err := p.llama(ctx, tools)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mlxcel-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	load := filepath.Join(scratch, "load")
	if err := p.quietly(p.goTool(ctx, "build", "-o", load, "./tests/server/load"), "building the load program"); err != nil {
		return err
	}
	model := p.bin("models", testenv.ModelFile)
	ours, stop, err := p.serve(ctx, p.bin("mlxcel-server"), "-m", model, "-q", "--parallel", strconv.Itoa(serverSlots),
		"--context", strconv.Itoa(serverCache/serverSlots), "--cache-tokens", strconv.Itoa(serverCache))
	if err != nil {
		return err
	}
	defer stop()
	theirs, stop, err := p.serve(ctx, filepath.Join(llama, "llama-server"), "-m", model, "-np", strconv.Itoa(serverSlots),
		"-c", strconv.Itoa(serverCache), "-t", strconv.Itoa(runtime.NumCPU()))
	if err != nil {
		return err
	}
	defer stop()
	var mine, peer [][]loadFigures // by number of clients
	for round := range rounds {
		for i, n := range strings.Split(b.clients, ",") {
			p.say("round %d of %d, %s clients", round+1, rounds, n)
			if round == 0 {
				mine, peer = append(mine, nil), append(peer, nil)
			}
			for _, side := range []struct {
				of  *server
				all *[]loadFigures
			}{{ours, &mine[i]}, {theirs, &peer[i]}} {
				f, err := p.load(ctx, load, side.of, n, b)
				if err != nil {
					return err
				}
				*side.all = append(*side.all, f)
			}
		}
	}
	fmt.Printf("\nSmolLM2-135M-Instruct, 4 bit; answers of %d tokens to prompts of about 45 tokens, every fourth of 600; %s each; medians of %d, in turns with llama-server of llama-cpp-python %s\n\n",
		b.tokens, b.time, rounds, p.lock.Llama.Version)
	fmt.Printf("| clients | | mlxcel-server --parallel %d | llama-server -np %d | ratio |\n|---|---|---|---|---|\n", serverSlots, serverSlots)
	for i := range mine {
		n := mine[i][0].Clients
		row := func(what string, of func(loadFigures) float64) {
			a, b := median(mine[i], of), median(peer[i], of)
			fmt.Printf("| %d | %s | %.1f | %.1f | %.2f |\n", n, what, a, b, a/b)
		}
		row("tok/s", func(f loadFigures) float64 { return f.Rate })
		row("first token p50, ms", func(f loadFigures) float64 { return f.FirstP50 })
		row("first token p99, ms", func(f loadFigures) float64 { return f.FirstP99 })
		row("between tokens p50, ms", func(f loadFigures) float64 { return f.GapP50 })
		row("between tokens p99, ms", func(f loadFigures) float64 { return f.GapP99 })
		row("requests", func(f loadFigures) float64 { return float64(f.Requests) })
	}
	for i := range mine {
		worst := slices.MaxFunc(mine[i], func(a, b loadFigures) int { return int(a.Growth - b.Growth) })
		fmt.Printf("\nmlxcel-server, %d clients: memory grew by %.1f MB at most in the second half of %d requests, none of which failed\n", worst.Clients, worst.Growth/1e6, worst.Requests)
	}
	return nil
}

// server is a server that runs.
type server struct {
	url string
	pid int
}

// serve starts a server on a free port of this machine and waits until it is ready. stop ends it.
func (p *project) serve(ctx context.Context, name string, args ...string) (_ *server, stop func(), err error) {
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := process(ctx, p.root, name, append(args, "--host", "127.0.0.1", "--port", port)...)
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, nil, fmt.Errorf("%s cannot be started: %w", name, err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // how it ended is of interest below only
	stop = func() { cancel(); <-ended }
	s := &server{"http://127.0.0.1:" + port, cmd.Process.Pid}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		select {
		case <-ended:
			cancel()
			return nil, nil, fmt.Errorf("%s ended before it was ready: %s", name, cmd.ProcessState)
		default:
		}
		if response, err := http.Get(s.url + "/health"); err == nil {
			_ = response.Body.Close() // nothing of it is read
			if response.StatusCode == http.StatusOK {
				return s, stop, nil
			}
		}
		if time.Since(begin) > time.Minute {
			stop()
			return nil, nil, fmt.Errorf("%s was not ready after a minute", name)
		}
	}
}

// freePort is one that nobody listens on now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// load lets clients ask a server.
func (p *project) load(ctx context.Context, program string, s *server, clients string, b serverBench) (loadFigures, error) {
	var f loadFigures
	output, err := p.measure(ctx, program, "--url", s.url, "--clients", clients, "--time", b.time.String(), "--tokens", strconv.Itoa(b.tokens),
		"--pid", strconv.Itoa(s.pid), "--json")
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(output, &f); err != nil {
		return f, fmt.Errorf("the load program printed no JSON: %w", err)
	}
	return f, nil
}
