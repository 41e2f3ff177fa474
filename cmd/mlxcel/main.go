// Command mlxcel runs language models on this machine. `mlxcel help` lists its commands.
package main

import (
	"context"
	"io"
	"os"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/terminal"
)

//go:generate go run ../internal/winres -name mlxcel -about "mlxcel runs language models on this machine"

func main() { cli.Exit(Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// Main runs the program with its arguments and returns the exit code. The end of ctx counts as Ctrl-C.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	defer terminal.Prepare()()
	return newApp().program().Main(ctx, args, cli.Streams{In: stdin, Out: stdout, Err: stderr})
}
