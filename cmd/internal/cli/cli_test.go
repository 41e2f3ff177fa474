package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func testProgram() *Program {
	return &Program{
		Name:  "prog",
		About: "prog is a test.",
		Commands: []Command{
			{
				Name: "greet", Aliases: []string{"hello"}, Short: "say hello", Usage: "NAME [flags]", MaxArgs: 1,
				Long: "Says it loudly or not.", Example: "prog greet Ann\nprog greet --loud Ann",
				Flags: func(f *pflag.FlagSet) Run {
					loud := f.Bool("loud", false, "say it loudly")
					times := f.IntP("times", "t", 1, "say it `N` times")
					return func(_ context.Context, args []string, s Streams) error {
						if len(args) == 0 {
							return Usagef("whom to greet?")
						}
						text := "hello " + args[0]
						if *loud {
							text = strings.ToUpper(text)
						}
						fmt.Fprintln(s.Out, strings.Repeat(text, *times))
						return nil
					}
				},
			},
			{
				Name: "fail", Short: "do not succeed",
				Flags: func(f *pflag.FlagSet) Run {
					how := f.String("how", "error", "")
					return func(context.Context, []string, Streams) error {
						switch *how {
						case "panic":
							var nothing []int
							return errors.New(fmt.Sprint(nothing[1]))
						case "interrupt":
							return fmt.Errorf("in between: %w", ErrInterrupted)
						}
						return errors.New("no luck:\n  really none")
					}
				},
			},
		},
		Aliases: map[string]string{"noisy": "loud"},
	}
}

func run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = testProgram().Main(context.Background(), args, Streams{strings.NewReader(""), &out, &err})
	return code, out.String(), err.String()
}

func TestProgram(t *testing.T) {
	for _, test := range []struct {
		args        string
		code        int
		out, errors string // the whole of stdout and stderr
	}{
		{"greet Ann", 0, "hello Ann\n", ""},
		{"hello Ann --loud", 0, "HELLO ANN\n", ""},
		{"greet --noisy Ann -t2", 0, "HELLO ANNHELLO ANN\n", ""},
		{"fail", 1, "", "prog: no luck: really none\n"},
		{"fail --how interrupt", 130, "", ""},
		{"greet", 2, "", "prog: whom to greet?\nSee 'prog greet --help'.\n"},
		{"greet Ann Bob", 2, "", "prog: greet has no use for the argument \"Bob\"\nSee 'prog greet --help'.\n"},
		{"greet --luod Ann", 2, "", "prog: unknown flag: --luod: did you mean --loud?\nSee 'prog greet --help'.\n"},
		{"greet --entirely Ann", 2, "", "prog: unknown flag: --entirely\nSee 'prog greet --help'.\n"},
		{"greet -x", 2, "", "prog: unknown shorthand flag: 'x' in -x\nSee 'prog greet --help'.\n"},
		{"greet --times", 2, "", "prog: flag needs an argument: --times\nSee 'prog greet --help'.\n"},
		{"gret Ann", 2, "", "prog: unknown command \"gret\": did you mean greet?\nSee 'prog --help'.\n"},
		{"dance", 2, "", "prog: unknown command \"dance\"\nSee 'prog --help'.\n"},
		{"--versoin", 2, "", "prog: unknown flag: --versoin: did you mean --version?\nSee 'prog --help'.\n"},
		{"help gret", 2, "", "prog: unknown command \"gret\": did you mean greet?\nSee 'prog --help'.\n"},
		{"help a b", 2, "", "prog: help takes the name of one command\nSee 'prog --help'.\n"},
		{"version x", 2, "", "prog: version takes no arguments\nSee 'prog --help'.\n"},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, out, errors := run(strings.Fields(test.args)...)
			require.Equal(t, test.code, code)
			require.Equal(t, test.out, out)
			require.Equal(t, test.errors, errors)
		})
	}
}

func TestWrongValueOfFlag(t *testing.T) {
	code, out, errors := run("greet", "-t", "many", "Ann")
	require.Equal(t, ExitUsage, code)
	require.Empty(t, out)
	require.Contains(t, errors, `invalid argument "many"`)
	require.Contains(t, errors, "--times")
}

func TestHelp(t *testing.T) {
	_, top, _ := run("--help")
	require.Contains(t, top, "prog is a test.\n")
	require.Contains(t, top, "  greet       say hello\n")
	for _, args := range [][]string{{"-h"}, {"help"}, {"help", "version"}} {
		code, out, errors := run(args...)
		require.Equal(t, ExitOK, code)
		require.Equal(t, top, out)
		require.Empty(t, errors)
	}

	_, greet, _ := run("greet", "--help")
	for _, part := range []string{
		"Usage:\n  prog greet NAME [flags]\n", "Also called:\n  hello\n", "Says it loudly or not.",
		"Examples:\n  prog greet Ann\n  prog greet --loud Ann\n", "  -t, --times N", "say it N times", "-h, --help",
	} {
		require.Contains(t, greet, part)
	}
	require.NotContains(t, greet, "true|false")
	require.NotContains(t, greet, "verbose", "a flag that only shows where bugs are")
	for _, args := range [][]string{{"help", "greet"}, {"help", "hello"}, {"greet", "Ann", "-h"}} {
		code, out, errors := run(args...)
		require.Equal(t, ExitOK, code)
		require.Equal(t, greet, out)
		require.Empty(t, errors)
	}
}

func TestNoCommand(t *testing.T) {
	code, out, errors := run()
	require.Equal(t, ExitUsage, code)
	require.Empty(t, out)
	require.Contains(t, errors, "Commands:\n")
}

func TestVersion(t *testing.T) {
	for _, argument := range []string{"--version", "version"} {
		code, out, errors := run(argument)
		require.Equal(t, ExitOK, code)
		require.Regexp(t, `^prog `+Version+`.* go1\..*\n$`, out)
		require.Empty(t, errors)
	}
}

func TestPanic(t *testing.T) {
	code, out, errors := run("fail", "--how", "panic")
	require.Equal(t, ExitFailure, code)
	require.Empty(t, out)
	require.Contains(t, errors, "prog: internal error: ")
	require.Contains(t, errors, "report this bug")
	require.NotContains(t, errors, "goroutine")
	require.Equal(t, 1, strings.Count(errors, "\n"))

	_, _, errors = run("fail", "--how", "panic", "-v")
	require.Contains(t, errors, "cli_test.go", "the trace")
}

// brokenWriter is a full disk.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestHelpThatCannotBeWritten(t *testing.T) {
	var errors bytes.Buffer
	for _, args := range [][]string{{"--help"}, {"greet", "--help"}, {"version"}} {
		errors.Reset()
		require.Equal(t, ExitFailure, testProgram().Main(context.Background(), args, Streams{nil, brokenWriter{}, &errors}))
		require.Equal(t, "prog: no space left on device\n", errors.String())
	}
}

func TestDidYouMean(t *testing.T) {
	names := []string{"generate", "chat", "inspect", "doctor"}
	for typed, want := range map[string]string{
		"genrate": "generate", "generaet": "generate", "hcat": "chat", "chatt": "chat", "dokter": "doctor", "inspekt": "inspect",
		"": "", "x": "", "no": "", "serve": "", "generation": "",
	} {
		if want != "" {
			want = ": did you mean " + want + "?"
		}
		require.Equal(t, want, DidYouMean(typed, names, ""), typed)
	}
}

func TestSeveralNodes(t *testing.T) {
	for _, flag := range []string{"--tp-size=2", "--pp_size", "--cluster-config=x", "--distributed", "--rank", "--tensor-parallel-size"} {
		code, out, errors := run("greet", flag)
		require.Equal(t, ExitUsage, code)
		require.Empty(t, out)
		name, _, _ := strings.Cut(strings.ReplaceAll(flag, "_", "-"), "=")
		require.Contains(t, errors, name+" is not possible: this build is single-node")
		require.Equal(t, 2, strings.Count(errors, "\n"), errors)
	}
	_, _, errors := run("greet", "--top")
	require.Contains(t, errors, "unknown flag")
}

func TestInterruptible(t *testing.T) {
	parent, cancel := context.WithCancel(context.Background())
	ctx, stop := Interruptible(parent, nil)
	require.NoError(t, ctx.Err())
	cancel()
	require.Error(t, ctx.Err(), "the end of the parent")
	stop()

	ctx, stop = Interruptible(context.Background(), nil)
	stop()
	require.Error(t, ctx.Err())
}
