package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/terminal"
)

// Single is a program that has no commands: its flags are those of the one command it is.
type Single struct {
	Command                   // its Name is the program's
	Aliases map[string]string // other spellings of flags
}

// Main runs the program as [Program.Main] does.
func (p *Single) Main(ctx context.Context, args []string, s Streams) (code int) {
	defer endOnInterrupt()()
	table := &Program{Name: p.Name, Aliases: p.Aliases}
	var flags *pflag.FlagSet
	defer func() {
		if bug := recover(); bug != nil {
			code = ExitFailure
			fmt.Fprintf(s.Err, "%s: internal error: %s; please report this bug and what you typed (-v prints where it is)\n",
				p.Name, oneLine(fmt.Sprint(bug)))
			if isSet(flags, "verbose") {
				s.Err.Write(debug.Stack())
			}
		}
	}()
	flags, run := table.flags(&p.Command)
	help := flags.BoolP("help", "h", false, "print this help")
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return table.report(flagError(flags, err, ""), s.Err)
	}
	switch {
	case *help || flags.NArg() == 1 && flags.Arg(0) == "help":
		return table.report(p.help(flags, s.Out), s.Err)
	case *version || flags.NArg() == 1 && flags.Arg(0) == "version":
		return table.report(table.version(s.Out), s.Err)
	case flags.NArg() > p.MaxArgs:
		return table.report(Usagef("%s has no use for the argument %q", p.Name, flags.Arg(p.MaxArgs)), s.Err)
	}
	return table.report(run(ctx, flags.Args(), s), s.Err)
}

func (p *Single) help(flags *pflag.FlagSet, w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s\n\nUsage:\n  %s %s\n", p.Name, p.Short, p.Name, p.Usage)
	if p.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(p.Long))
	}
	if p.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(p.Example), "\n", "\n  "))
	}
	const noise = "[=true|false]" // see writeCommandHelp
	usages := strings.ReplaceAll(flags.FlagUsagesWrapped(terminal.Width(w)), noise, strings.Repeat(" ", len(noise)))
	fmt.Fprintf(&b, "\nFlags:\n%s", usages)
	_, err := w.Write(b.Bytes())
	return err
}
