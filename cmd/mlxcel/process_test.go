package main

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// start returns a command that is mlxcel in a process of its own; see programVariable.
func start(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self, args...)
	c.Env = append(os.Environ(), programVariable+"="+program, "MLXCEL_HISTORY=")
	return c
}

func TestVersionIsQuick(t *testing.T) {
	// The goal is 30 ms. The bound leaves room for a machine that is busy, and a bundle that is not there shows that no
	// library is opened.
	best := time.Hour
	for range 5 {
		c := start(t, "real", "--version")
		c.Env = append(c.Env, "MLXCEL_BUNDLE=/nowhere")
		began := time.Now()
		out, err := c.Output()
		best = min(best, time.Since(began))
		require.NoError(t, err)
		require.Regexp(t, `^mlxcel \S+ .*\n$`, string(out))
	}
	require.Less(t, best, 200*time.Millisecond)
}
