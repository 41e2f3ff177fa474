package main

import (
	"context"
	"os"
	"path/filepath"
)

// buildPrograms builds mlxcel and mlxcel-server into bin/. What is up to date
// costs Go nothing.
func (p *project) buildPrograms(ctx context.Context) error {
	if !exists(p.bin("mlxcel")) || !exists(p.bin("mlxcel-server")) {
		p.say("building mlxcel and mlxcel-server into %s", p.bin())
	}
	if err := os.MkdirAll(p.bin(), 0o755); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-o", p.bin() + string(filepath.Separator)}
	if process(ctx, p.root, "git", "status", "--porcelain").Run() != nil {
		// No git, or a checkout that git refuses to read: no version stamp.
		args = append(args, "-buildvcs=false")
	}
	return p.quietly(p.goTool(ctx, append(args, "./cmd/mlxcel", "./cmd/mlxcel-server")...), "building the programs")
}
