package main

import (
	"context"
	"flag"
	"os"
)

// demo is the subcommand demo: the program with the default model answers a
// prompt on stdout.
func demo(ctx context.Context, p *project, args []string) error {
	if err := parseFlags(p, flag.NewFlagSet("demo", flag.ContinueOnError), args); err != nil {
		return err
	}
	if err := p.setup(ctx); err != nil {
		return err
	}
	const prompt = "What is the capital of France?"
	p.say("bin/mlxcel generate -p %q", prompt)
	cmd := process(ctx, p.root, p.bin("mlxcel"), "generate", "-p", prompt)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return asProgramError(cmd.Run())
}
