package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// buildPrograms builds mlxcel and mlxcel-server for a bundle, and adds them to its
// files. What is up to date costs a few tenths of a second, as Go's own cache
// knows.
func (p *project) buildPrograms(ctx context.Context, f flavor, files map[string]string) error {
	dir := p.buildFolder("programs-" + f.target)
	system, exe := "linux", ""
	if f.windows() {
		system, exe = "windows", ".exe"
	}
	if !exists(dir) {
		p.say("building mlxcel and mlxcel-server")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Nothing of this machine's paths, and no tables for debuggers.
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}
	if process(ctx, p.root, "git", "status", "--porcelain").Run() != nil {
		// No git, or a checkout that git refuses to read: no version stamp.
		args = append(args, "-buildvcs=false")
	}
	build := p.goTool(ctx, append(args, "./cmd/mlxcel", "./cmd/mlxcel-server")...)
	build.Env = append(build.Env, "GOOS="+system, "GOARCH=amd64")
	if err := p.quietly(build, "building the programs"); err != nil {
		return err
	}
	for _, name := range []string{"mlxcel", "mlxcel-server"} {
		files[name+exe] = filepath.Join(dir, name+exe)
	}
	return nil
}

var versionLine = regexp.MustCompile(`(?m)^const Version = "([^"]+)"$`)

// version is the release of mlxcel.
func (p *project) version() (string, error) {
	text, err := os.ReadFile(p.path("cmd", "internal", "cli", "version.go"))
	if err != nil {
		return "", err
	}
	match := versionLine.FindStringSubmatch(strings.ReplaceAll(string(text), "\r", ""))
	if match == nil {
		return "", errors.New("cmd/internal/cli/version.go has no line const Version = \"…\"")
	}
	return match[1], nil
}
