package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/host"
	"mlxcel/runtime"
)

// figures are what is told about an answer.
type figures struct {
	*runtime.Summary
	load   time.Duration
	peak   int64 // of the process's memory, 0 if unknown
	device int64 // most memory that the device had in use, 0 if unknown
	random bool  // whether seed was used
	seed   uint64
}

func (s *session) figures(summary *runtime.Summary, r runtime.Request) figures {
	f := figures{Summary: summary, load: s.Facts().LoadTime, peak: host.PeakMemory()}
	if m, err := s.Memory(); err == nil {
		f.device = m.Peak
	}
	f.random, f.seed = r.Sampling.Temperature > 0, r.Sampling.Seed
	return f
}

// firstToken is how long the first token took.
func (f figures) firstToken() time.Duration { return f.Wait + f.Prompt }

// line is the figures in short.
func (f figures) line() string {
	parts := []string{count(f.PromptTokens, "prompt token")}
	if f.CachedTokens > 0 {
		parts[0] += fmt.Sprintf(" (%d reused)", f.CachedTokens)
	}
	if rate := f.PromptRate(); rate > 0 {
		parts[0] += fmt.Sprintf(", %.1f tok/s", rate)
	}
	decode := count(f.Tokens, "token")
	if rate := f.DecodeRate(); rate > 0 {
		decode += fmt.Sprintf(", %.1f tok/s", rate)
	}
	parts = append(parts, decode)
	if f.Tokens > 0 {
		parts = append(parts, "first token after "+formatDuration(f.firstToken()))
	}
	if f.peak > 0 {
		parts = append(parts, "peak memory "+cli.Bytes(f.peak))
	}
	return strings.Join(parts, " | ")
}

// details are the figures that line leaves out.
func (f figures) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "finish   %s\n", f.Finish)
	fmt.Fprintf(&b, "time     load %s, wait %s, prompt %s, decode %s\n",
		formatDuration(f.load), formatDuration(f.Wait), formatDuration(f.Prompt), formatDuration(f.Decode))
	fmt.Fprintf(&b, "prompt   %d tokens, %d of them reused\n", f.PromptTokens, f.CachedTokens)
	fmt.Fprintf(&b, "memory   process %s, arrays %s at most\n", cli.Bytes(f.peak), cli.Bytes(f.device))
	if f.random {
		fmt.Fprintf(&b, "seed     %d\n", f.seed)
	}
	return b.String()
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func formatDuration(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// describeLibrary says what a library is.
func describeLibrary(l runtime.Library) string {
	i := l.Info
	text := fmt.Sprintf("backend %s %s, variant %s", i.Backend, i.Version, cmp.Or(l.Variant, "unknown"))
	if i.Loaded != "" {
		text += ", MLX " + i.Loaded
	}
	return text
}
