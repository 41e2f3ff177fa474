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

func TestSingle(t *testing.T) {
	program := &Single{
		Command: Command{
			Name: "single", Short: "says a number", Usage: "[flags]", Long: "It is a test.", Example: "single -n 3",
			Flags: func(f *pflag.FlagSet) Run {
				n := f.IntP("number", "n", 1, "the `NUMBER`")
				return func(_ context.Context, _ []string, s Streams) error {
					switch *n {
					case 0:
						return errors.New("nothing")
					case -1:
						panic("a bug")
					case -2:
						return Usagef("too small")
					}
					_, err := fmt.Fprintln(s.Out, *n)
					return err
				}
			},
		},
		Aliases: map[string]string{"num": "number"},
	}
	for _, test := range []struct {
		args        string
		code        int
		out, errors string // patterns of all of it
	}{
		{"", ExitOK, `^1\n$`, `^$`},
		{"--num 4", ExitOK, `^4\n$`, `^$`},
		{"-n 0", ExitFailure, `^$`, `^single: nothing\n$`},
		{"-n -1", ExitFailure, `^$`, `^single: internal error: a bug; .*\n$`},
		{"-n -1 -v", ExitFailure, `^$`, `single_test.go`},
		{"-n -2", ExitUsage, `^$`, `^single: too small\nSee 'single --help'.\n$`},
		{"--numbr 1", ExitUsage, `^$`, `did you mean --number\?\nSee 'single --help'.\n$`},
		{"more", ExitUsage, `^$`, `^single: single has no use for the argument "more"\n`},
		{"--version", ExitOK, `^single ` + Version, `^$`},
		{"version", ExitOK, `^single ` + Version, `^$`},
		{"--help", ExitOK, `(?s)^single: says a number\n\nUsage:\n  single \[flags\]\n\nIt is a test.\n\nExamples:\n  single -n 3\n\nFlags:\n.*the NUMBER`, `^$`},
		{"help", ExitOK, `Usage:`, `^$`},
	} {
		t.Run(test.args, func(t *testing.T) {
			var out, errors bytes.Buffer
			code := program.Main(context.Background(), strings.Fields(test.args), Streams{nil, &out, &errors})
			require.Equal(t, test.code, code)
			require.Regexp(t, test.out, out.String())
			require.Regexp(t, test.errors, errors.String())
		})
	}
}
