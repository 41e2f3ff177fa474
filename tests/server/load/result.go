package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// result is what was measured of all clients together.
type result struct {
	mu       sync.Mutex
	requests int
	failed   int
	errors   []string // the first few
	tokens   int
	firsts   []time.Duration
	gaps     []time.Duration
	took     time.Duration
}

func (r *result) add(a *answer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if err != nil {
		if r.failed++; r.failed <= 5 {
			r.errors = append(r.errors, err.Error())
		}
		return
	}
	r.tokens += a.tokens
	if a.first > 0 {
		r.firsts = append(r.firsts, a.first)
	}
	r.gaps = append(r.gaps, a.gaps...)
}

// Figures are what is told of a number of clients; times are in milliseconds.
type Figures struct {
	Clients  int      `json:"clients"`
	Requests int      `json:"requests"`
	Failed   int      `json:"failed"`
	Errors   []string `json:"errors,omitempty"` // the first few
	Rate     float64  `json:"tokens_per_s"`     // of all clients together
	FirstP50 float64  `json:"first_token_p50_ms"`
	FirstP99 float64  `json:"first_token_p99_ms"`
	GapP50   float64  `json:"inter_token_p50_ms"`
	GapP99   float64  `json:"inter_token_p99_ms"`
	Growth   *int64   `json:"memory_growth_bytes,omitempty"` // over the second half
}

func (r *result) figures(clients int, growth *int64) Figures {
	return Figures{
		Clients: clients, Requests: r.requests, Failed: r.failed, Errors: r.errors, Rate: float64(r.tokens) / r.took.Seconds(),
		FirstP50: ms(quantile(r.firsts, .5)), FirstP99: ms(quantile(r.firsts, .99)),
		GapP50: ms(quantile(r.gaps, .5)), GapP99: ms(quantile(r.gaps, .99)), Growth: growth,
	}
}

func (f Figures) write(w io.Writer) {
	growth := "-"
	if f.Growth != nil {
		growth = fmt.Sprintf("%+.1f MB", float64(*f.Growth)/1e6)
	}
	fmt.Fprintf(w, "%7d %8d %6d %9.1f %6.1f ms %6.1f ms %6.1f ms %6.1f ms %10s\n", f.Clients, f.Requests, f.Failed, f.Rate,
		f.FirstP50, f.FirstP99, f.GapP50, f.GapP99, growth)
	for _, e := range f.Errors {
		fmt.Fprintln(w, "   ", e)
	}
}

// quantile returns the value that a share q of all is at most, 0 if there are none.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// watchMemory looks at the memory of a process when half of the time is over, and when the returned function is called:
// that returns the growth between, nil if it is not known.
func watchMemory(pid int, length time.Duration) func() *int64 {
	if pid == 0 {
		return func() *int64 { return nil }
	}
	half := make(chan int64, 1)
	timer := time.AfterFunc(length/2, func() { half <- residentBytes(pid) })
	return func() *int64 {
		timer.Stop()
		select {
		case before := <-half:
			growth := residentBytes(pid) - before
			return &growth
		default:
			return nil
		}
	}
}

// residentBytes is the memory of a process as Linux tells it, 0 elsewhere.
func residentBytes(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
