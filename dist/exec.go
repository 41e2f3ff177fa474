package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// process prepares a program run in the folder dir. When ctx ends, the program
// is interrupted as by Ctrl-C, and killed if it then does not stop.
func process(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// goTool prepares the go command in the root of the checkout, with cgo off as
// everywhere in this project.
func (p *project) goTool(ctx context.Context, args ...string) *exec.Cmd {
	cmd := process(ctx, p.root, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

// capture runs cmd and returns what it wrote to both of its outputs.
func capture(cmd *exec.Cmd) (output string, err error) {
	var buffer bytes.Buffer
	cmd.Stdout, cmd.Stderr = &buffer, &buffer
	err = cmd.Run()
	return buffer.String(), err
}

// quietly runs cmd. Only when it fails, its last lines are shown, and the error
// says that what failed.
func (p *project) quietly(cmd *exec.Cmd, what string) error {
	output, err := capture(cmd)
	if err != nil {
		return p.failure(cmd, output, what, err)
	}
	return nil
}

// failure shows the end of a failed command's output and returns the error.
func (p *project) failure(cmd *exec.Cmd, output, what string, err error) error {
	const most = 40
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if len(lines) > most {
		lines = append([]string{"…"}, lines[len(lines)-most:]...)
	}
	fmt.Fprintf(p.log, "  $ %s\n", strings.Join(cmd.Args, " "))
	for _, line := range lines {
		fmt.Fprintf(p.log, "  %s\n", line)
	}
	return fmt.Errorf("%s failed: %w; its own words are above", what, err)
}

// clientFailure is failure for package clients, whose usual reasons get their
// own sentence.
func (p *project) clientFailure(cmd *exec.Cmd, output, client, what string, err error) error {
	remedy := map[string]string{
		"pip": "PIP_INDEX_URL or PIP_FIND_LINKS",
		"npm": "npm's setting registry",
	}[client]
	switch {
	case containsAny(output, "Temporary failure in name resolution", "Name or service not known", "Failed to establish a new connection",
		"Network is unreachable", "Max retries exceeded", "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ENETUNREACH", "ETIMEDOUT"):
		return fmt.Errorf("%s cannot reach its package registry to fetch %s: connect this machine to a network, or point %s at a registry it can reach (%s), and run the command again",
			client, what, client, remedy)
	case containsAny(output, "No space left on device", "ENOSPC"):
		return fmt.Errorf("no space is left to fetch %s: free some in %s, or set MLXCEL_CACHE to a folder on another disk, and run the command again", what, p.cache)
	}
	return p.failure(cmd, output, "fetching "+what, err)
}

func containsAny(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
