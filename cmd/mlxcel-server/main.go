// Command mlxcel-server serves a model over HTTP, as OpenAI does. It is `mlxcel serve` under a name of its own.
package main

import (
	"context"
	"io"
	"os"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/serve"
	"mlxcel/cmd/internal/terminal"
)

//go:generate go run ../internal/winres -name mlxcel-server -about "mlxcel-server serves a language model over HTTP"

func main() { cli.Exit(Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// Main runs the program with its arguments and returns the exit code. The end of ctx counts as Ctrl-C.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	defer terminal.Prepare()()
	program := &cli.Single{Command: serve.Command("mlxcel-server", nil), Aliases: serve.Aliases()}
	return program.Main(ctx, args, cli.Streams{In: stdin, Out: stdout, Err: stderr})
}
