// Command mlxcel-server will serve models over HTTP. This version only says so.
package main

import (
	"fmt"
	"io"
	"os"

	"mlxcel/cmd/internal/cli"
)

func main() { os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr)) }

// Main runs the program with its arguments and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 {
		switch args[0] {
		case "--version", "version":
			fmt.Fprintln(stdout, cli.VersionLine("mlxcel-server"))
			return cli.ExitOK
		case "--help", "-h", "help":
			fmt.Fprint(stdout, "mlxcel-server will serve models over HTTP; in this version it does not yet.\n\n"+
				"Usage:\n  mlxcel-server --version\n  mlxcel-server --help\n")
			return cli.ExitOK
		}
	}
	fmt.Fprintln(stderr, "mlxcel-server: the server comes with a later version; until then, use mlxcel generate or mlxcel chat")
	return cli.ExitFailure
}
