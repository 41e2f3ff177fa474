// Package cli runs programs that are a table of commands, each with its own flags.
//
// A command writes its answer to Streams.Out and everything else to Streams.Err. The exit code is 0 for success, 1 for a
// failure, 2 for a wrong command line and 130 for an interrupted run.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Exit codes.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitInterrupted = 130 // what shells report for a program that Ctrl-C ended
)

// ErrInterrupted ends a command that was interrupted and has said what it had to say.
var ErrInterrupted = errors.New("interrupted")

// Streams are what a command reads and writes.
type Streams struct {
	In  io.Reader
	Out io.Writer // the answer, and nothing else
	Err io.Writer // notices, progress, figures and errors
}

// Run does what a command is for. Its args are what is left beside the flags.
type Run func(ctx context.Context, args []string, s Streams) error

// Command is an entry of the table.
type Command struct {
	Name    string
	Aliases []string
	Short   string // one line for the list of commands
	Usage   string // follows the name in the usage line
	Long    string // paragraphs for the command's own help
	Example string // lines without indentation
	MaxArgs int    // arguments beside the flags

	// Flags defines the command's flags, bound to variables of its own, and returns what runs with them.
	Flags func(*pflag.FlagSet) Run
}

// Program is a table of commands. The commands help and version, and the flags --help and --version, come of themselves.
type Program struct {
	Name     string
	About    string
	Commands []Command
	Aliases  map[string]string // other spellings of flags
}

// usageError is a wrong command line.
type usageError struct {
	message string
	command string // whose help to read, "" for the program's
}

func (e *usageError) Error() string { return e.message }

// Usagef makes an error about the command line, which leads to ExitUsage and a hint at the command's help.
func Usagef(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// Main runs the command that args name, without the program's name, and returns the exit code. All errors are printed,
// as one sentence; so is a panic, a bug, whose trace is printed only if the command's flag --verbose is set.
func (p *Program) Main(ctx context.Context, args []string, s Streams) (code int) {
	defer endOnInterrupt()()
	var flags *pflag.FlagSet // of the command
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
	return p.report(p.dispatch(ctx, args, s, &flags), s.Err)
}

// report prints an error and returns the exit code for it.
func (p *Program) report(err error, w io.Writer) int {
	var usage *usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrInterrupted):
		return ExitInterrupted
	case errors.As(err, &usage):
		help := strings.TrimSpace(p.Name + " " + usage.command)
		fmt.Fprintf(w, "%s: %s\nSee '%s --help'.\n", p.Name, oneLine(err.Error()), help)
		return ExitUsage
	}
	fmt.Fprintf(w, "%s: %s\n", p.Name, oneLine(err.Error()))
	return ExitFailure
}

func (p *Program) dispatch(ctx context.Context, args []string, s Streams, flags **pflag.FlagSet) error {
	top := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	top.SetInterspersed(false) // flags behind the command are the command's
	top.Usage = func() {}
	version := top.Bool("version", false, "")
	switch err := top.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return p.help(nil, s.Out)
	case err != nil:
		return flagError(top, err, "")
	case *version:
		return p.version(s.Out)
	case top.NArg() == 0:
		p.writeHelp(s.Err)
		return Usagef("no command is given")
	}
	name, args := top.Arg(0), top.Args()[1:]
	switch name {
	case "help":
		return p.help(args, s.Out)
	case "version":
		if len(args) > 0 {
			return Usagef("version takes no arguments")
		}
		return p.version(s.Out)
	}
	c, err := p.find(name)
	if err != nil {
		return err
	}
	set, run := p.flags(c)
	*flags = set
	switch err := set.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return p.writeCommandHelp(c, s.Out)
	case err != nil:
		return flagError(set, err, c.Name)
	case set.NArg() > c.MaxArgs:
		return &usageError{fmt.Sprintf("%s has no use for the argument %q", c.Name, set.Arg(c.MaxArgs)), c.Name}
	}
	err = run(ctx, set.Args(), s)
	if usage := (*usageError)(nil); errors.As(err, &usage) && usage.command == "" {
		return &usageError{err.Error(), c.Name}
	}
	return err
}

func (p *Program) version(w io.Writer) error {
	_, err := fmt.Fprintln(w, VersionLine(p.Name))
	return err
}

// find returns the command with a name or alias.
func (p *Program) find(name string) (*Command, error) {
	names := []string{"help", "version"}
	for i := range p.Commands {
		c := &p.Commands[i]
		if c.Name == name || slices.Contains(c.Aliases, name) {
			return c, nil
		}
		names = append(append(names, c.Name), c.Aliases...)
	}
	return nil, Usagef("unknown command %q%s", name, DidYouMean(name, names, ""))
}

// flags returns a command's flags and what runs with them.
func (p *Program) flags(c *Command) (*pflag.FlagSet, Run) {
	set := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	set.SortFlags = false
	set.Usage = func() {} // help and errors are printed here, not by Parse
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		name = strings.ReplaceAll(name, "_", "-")
		if other, ok := p.Aliases[name]; ok {
			name = other
		}
		return pflag.NormalizedName(name)
	})
	run := c.Flags(set)
	if set.Lookup("verbose") == nil {
		set.BoolP("verbose", "v", false, "")
		_ = set.MarkHidden("verbose")
	}
	return set, run
}

// flagError makes a usage error of what Parse returned.
func flagError(set *pflag.FlagSet, err error, command string) error {
	message := err.Error()
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		if refusal := refuseDistributed(unknown.GetSpecifiedName()); refusal != "" {
			return &usageError{refusal, command}
		}
		var names []string
		set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		message += DidYouMean(unknown.GetSpecifiedName(), names, "--")
	}
	return &usageError{message, command}
}

func isSet(flags *pflag.FlagSet, name string) bool {
	if flags == nil {
		return false
	}
	f := flags.Lookup(name)
	return f != nil && f.Value.String() == "true"
}

// oneLine keeps an error one line on the terminal, whatever it quotes.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, " ")
}
