package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A fuzzTarget is one FuzzX function of a package.
type fuzzTarget struct{ pkg, name string }

// fuzz runs every fuzz target for a short time; their committed inputs have
// been run as ordinary tests.
func (p *project) fuzz(ctx context.Context, long bool) error {
	duration := "5s"
	if long {
		duration = "60s"
	}
	list := p.goTool(ctx, "test", "-list=^Fuzz", "./...")
	listing, err := capture(list)
	if err != nil {
		return p.failure(list, listing, "listing the fuzz targets", err)
	}
	targets := parseFuzzTargets(listing)
	if len(targets) == 0 {
		return errors.New("no fuzz target was found")
	}
	var failed []string
	for _, target := range targets {
		p.say("fuzzing %s.%s for %s", target.pkg, target.name, duration)
		if err := p.fuzzOne(ctx, target, duration, long); err != nil {
			p.say("%v", err)
			failed = append(failed, target.pkg+"."+target.name)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("inputs were found that break %s", strings.Join(failed, ", "))
	}
	return nil
}

// fuzzOne fuzzes one target. When the time is up in the middle of an input, Go
// now and then reports the deadline itself as a failure, without an input; that
// is tried once more.
func (p *project) fuzzOne(ctx context.Context, target fuzzTarget, duration string, long bool) error {
	for again := true; ; again = false {
		cmd := p.goTool(ctx, "test", "-run=^$", "-fuzz=^"+target.name+"$", "-fuzztime="+duration, target.pkg)
		cmd.Env = append(cmd.Env, p.testEnvironment(long)...)
		output, err := capture(cmd)
		if err == nil {
			return nil
		}
		deadline := strings.Contains(output, "context deadline exceeded") && !strings.Contains(output, "Failing input written")
		if !again || !deadline {
			return p.failure(cmd, output, "fuzzing "+target.name, err)
		}
	}
}

// parseFuzzTargets reads the output of `go test -list ^Fuzz ./...`: names, one
// a line, then a line "ok <package> <time>".
func parseFuzzTargets(listing string) []fuzzTarget {
	var targets []fuzzTarget
	var names []string
	for line := range strings.Lines(listing) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 1 && strings.HasPrefix(fields[0], "Fuzz"):
			names = append(names, fields[0])
		case len(fields) >= 2 && fields[0] == "ok":
			for _, name := range names {
				targets = append(targets, fuzzTarget{fields[1], name})
			}
			names = nil
		}
	}
	return targets
}
