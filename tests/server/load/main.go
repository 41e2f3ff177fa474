// Command load measures a server that speaks OpenAI's API, on this machine only: so many clients at once, each of which
// sends its next chat when it has the whole answer to the last one.
//
//	go run ./tests/server/load --url http://127.0.0.1:8080 --clients 1,2,4,8,16,32 --time 60s
//
// It prints a line for each number of clients: tokens a second of all together, the times to the first token and between
// tokens, and what failed. With --pid, also how the memory of that process grew over the second half. --json prints
// objects, of [Figures].
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// Bounds, so that a mistyped number does no harm.
const (
	maxClients = 128
	maxTime    = 10 * time.Minute
)

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	c := config{run: time.Now().UnixMilli() % 1e6}
	flags.StringVar(&c.url, "url", "http://127.0.0.1:8080", "address of the server, on this machine")
	clients := flags.String("clients", "1,2,4,8,16,32", "numbers of clients, one after the other")
	flags.DurationVar(&c.time, "time", time.Minute, "how long, for each number of clients")
	flags.IntVar(&c.tokens, "tokens", 32, "length of answers")
	flags.IntVar(&c.long, "long", 4, "every so many-th prompt has about 600 tokens; 0: none")
	flags.IntVar(&c.silent, "silent", 17, "ban the first so many token ids: SmolLM2's control tokens, which have no text")
	pid := flags.Int("pid", 0, "process whose memory is watched")
	asJSON := flags.Bool("json", false, "print a JSON object a line")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	if !*asJSON {
		fmt.Fprintf(out, "%7s %8s %6s %9s %9s %9s %9s %9s %10s\n", "clients", "requests", "failed", "tok/s", "ttft p50", "ttft p99", "itl p50", "itl p99", "rss growth")
	}
	failed, first := 0, ""
	for word := range strings.SplitSeq(*clients, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > maxClients {
			return fmt.Errorf("--clients has %q, want numbers from 1 to %d", word, maxClients)
		}
		watch := watchMemory(*pid, c.time)
		r := c.measure(ctx, n)
		figures := r.figures(n, watch())
		if failed += figures.Failed; first == "" && figures.Failed > 0 {
			first = figures.Errors[0]
		}
		if *asJSON {
			if err := json.NewEncoder(out).Encode(figures); err != nil {
				return err
			}
		} else {
			figures.write(out)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d requests failed, such as with: %s", failed, first)
	}
	return nil
}
