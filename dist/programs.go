package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
)

// buildPrograms builds mlxcel and mlxcel-server into bin/. What is up to date
// costs Go nothing.
func (p *project) buildPrograms(ctx context.Context) error {
	if !exists(p.bin("mlxcel")) || !exists(p.bin("mlxcel-server")) {
		p.say("building mlxcel and mlxcel-server into %s", p.bin())
	}
	return p.buildProgramsFor(ctx, p.bin(), runtime.GOOS)
}

// buildProgramsFor builds the programs for a system, on x86-64, into a folder.
func (p *project) buildProgramsFor(ctx context.Context, dir, system string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-o", dir + string(filepath.Separator)}
	if process(ctx, p.root, "git", "status", "--porcelain").Run() != nil {
		// No git, or a checkout that git refuses to read: no version stamp.
		args = append(args, "-buildvcs=false")
	}
	build := p.goTool(ctx, append(args, "./cmd/mlxcel", "./cmd/mlxcel-server")...)
	build.Env = append(build.Env, "GOOS="+system, "GOARCH=amd64")
	return p.quietly(build, "building the programs")
}
