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

func (r *result) write(w io.Writer, clients int, growth string) {
	rate := float64(r.tokens) / r.took.Seconds()
	fmt.Fprintf(w, "%7d %8d %6d %9.1f %9s %9s %9s %9s %10s\n", clients, r.requests, r.failed, rate,
		ms(quantile(r.firsts, .5)), ms(quantile(r.firsts, .99)), ms(quantile(r.gaps, .5)), ms(quantile(r.gaps, .99)), growth)
}

// quantile returns the value that a share q of all is at most, 0 if there are none.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// watchMemory looks at the memory of a process when half of the time is over, and when the returned function is called:
// that returns the growth between.
func watchMemory(pid int, length time.Duration) func() string {
	if pid == 0 {
		return func() string { return "-" }
	}
	half := make(chan int64, 1)
	timer := time.AfterFunc(length/2, func() { half <- residentBytes(pid) })
	return func() string {
		timer.Stop()
		select {
		case before := <-half:
			return fmt.Sprintf("%+.1f MB", float64(residentBytes(pid)-before)/1e6)
		default:
			return "?"
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
