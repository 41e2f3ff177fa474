package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// npmPack is the fetchFunc of npm tarballs.
func (p *project) npmPack(ctx context.Context, a artifact, dir string) error {
	npm, err := p.npm(ctx)
	if err != nil {
		return err
	}
	cmd := process(ctx, dir, npm, "pack", a.Name+"@"+a.Version, "--pack-destination", dir, "--ignore-scripts", "--no-audit", "--no-fund")
	// Without a network, say so in seconds rather than minutes.
	cmd.Env = append(os.Environ(), "npm_config_update_notifier=false",
		"npm_config_fetch_retry_mintimeout=1000", "npm_config_fetch_retry_maxtimeout=5000")
	if output, err := capture(cmd); err != nil {
		return p.clientFailure(cmd, output, "npm", a.String(), err)
	}
	return nil
}

// npm returns the system's npm, or one that pip installs.
func (p *project) npm(ctx context.Context) (string, error) {
	if npm, err := exec.LookPath("npm"); err == nil && process(ctx, p.cache, npm, "--version").Run() == nil {
		return npm, nil
	}
	bin, err := p.environment(ctx, "node", pipSet{pins: p.lock.Python.Node})
	if err != nil {
		return "", err
	}
	return filepath.Join(bin, "npm"), nil
}
