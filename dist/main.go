// Command dist sets up, builds, demonstrates and tests mlxcel from a fresh
// clone. It needs Go, a C++20 compiler and Python 3 with venv and pip;
// everything else it fetches at pinned versions (lock.json) into a cache
// folder: $MLXCEL_CACHE, or "mlxcel" in the user's cache folder.
//
//	go run ./dist demo    set everything up and answer a prompt with a real model
//	go run ./dist test    set everything up and run every test
//
// Every step first looks whether its result is already there, so a second run
// does no work twice. What dist says goes to stderr.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"text/tabwriter"
)

// A command is one subcommand of dist.
type command struct {
	name string
	help string
	run  func(ctx context.Context, p *project, args []string) error
}

var commands = []command{
	{"demo", "set everything up and answer a prompt with a real model", demo},
	{"test", "set everything up and run every test (--long: with mlx-lm, longer fuzzing)", test},
	{"bench", "measure mlxcel beside mlx-lm (bench), llama.cpp (bench cpu) or llama-server (bench server)", bench},
	{"setup", "set up what demo needs, without running it (--tests, --windows: what these need, too)", setupCommand},
	{"build", "build the library, the bundle and the programs into bin/", build},
	{"bundle", "build an archive to unpack and run elsewhere: --target, --variant", bundleCommand},
	{"audit", "check an archive, or an unpacked one: libraries, headers, licences, manifest", auditCommand},
	{"packages", "describe the archives in out/ for scoop and winget (--url, --home)", packagesCommand},
	{"lock", "fetch pinned versions again and renew sizes and hashes in dist/lock.json (--only PACKAGE)", renewLock},
	{"clean", "remove bin/ and this checkout's build folder (--all: the whole cache, too)", clean},
}

// errUsage says that the command line was wrong and that this has been told.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// run executes the subcommand that args name and returns the exit code: 0, 1
// for a failure, 2 for wrong usage, or that of the program run by demo.
func run(ctx context.Context, args []string, log io.Writer) int {
	if len(args) == 0 {
		usage(log)
		return 2
	}
	for _, c := range commands {
		if c.name != args[0] {
			continue
		}
		p, err := openProject(log)
		if err == nil {
			err = c.run(ctx, p, args[1:])
		}
		return exitCode(ctx, err, log)
	}
	usage(log)
	switch args[0] {
	case "help", "-h", "-help", "--help":
		return 0
	}
	fmt.Fprintf(log, "\ndist: there is no subcommand %q\n", args[0])
	return 2
}

// exitCode tells err, if any, and turns it into an exit code.
func exitCode(ctx context.Context, err error, log io.Writer) int {
	var program *programError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	case errors.As(err, &program):
		return program.code
	case ctx.Err() != nil:
		fmt.Fprintln(log, "dist: interrupted; run the same command again to go on")
		return 1
	}
	fmt.Fprintf(log, "dist: %v\n", err)
	return 1
}

// A programError is the failure of a program that told its own reasons.
type programError struct{ code int }

func (e *programError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// asProgramError replaces the error of a program that ran and failed.
func asProgramError(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return &programError{exit.ExitCode()}
	}
	return err
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: go run ./dist <subcommand>")
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, c := range commands {
		fmt.Fprintf(table, "  %s\t%s\n", c.name, c.help)
	}
	table.Flush()
}

// parseFlags parses the flags of a subcommand, which takes no other arguments.
func parseFlags(p *project, flags *flag.FlagSet, args []string) error {
	flags.SetOutput(p.log)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(p.log, "dist %s: it takes no argument, but got %q\n", flags.Name(), flags.Arg(0))
		return errUsage
	}
	return nil
}
