package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
)

// clean is the subcommand clean.
func clean(ctx context.Context, p *project, args []string) error {
	flags := flag.NewFlagSet("clean", flag.ContinueOnError)
	all := flags.Bool("all", false, "also remove the cache, with everything that was fetched")
	if err := parseFlags(p, flags, args); err != nil {
		return err
	}
	folders := []string{p.bin(), filepath.Dir(p.buildFolder(""))}
	if *all {
		folders = append(folders, p.cache)
	}
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, folder := range folders {
		if !exists(folder) {
			continue
		}
		p.say("removing %s", folder)
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return nil
}
