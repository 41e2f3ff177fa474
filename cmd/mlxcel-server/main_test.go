package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
)

func TestServer(t *testing.T) {
	for _, test := range []struct {
		args        string
		code        int
		out, errors string // patterns of all of it
	}{
		{"--version", cli.ExitOK, `^mlxcel-server ` + cli.Version + ` .*\n$`, `^$`},
		{"--help", cli.ExitOK, `(?s)^mlxcel-server: serve a model.*--port.*--cors-origin`, `^$`},
		{"--prot 80", cli.ExitUsage, `^$`, `did you mean --port\?`},
		{"--port 70000", cli.ExitUsage, `^$`, `--port is 70000, want 0 to 65535`},
		{"--port 0 --bundle /nowhere -m /nowhere -q", cli.ExitFailure, `^$`, `(?s)^mlxcel-server: .*/nowhere.*\n$`},
	} {
		t.Run(test.args, func(t *testing.T) {
			var out, errors bytes.Buffer
			require.Equal(t, test.code, Main(context.Background(), strings.Fields(test.args), nil, &out, &errors))
			require.Regexp(t, test.out, out.String())
			require.Regexp(t, test.errors, errors.String())
		})
	}
}
