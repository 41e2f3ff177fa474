package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
)

func TestServer(t *testing.T) {
	for _, test := range []struct {
		args        []string
		code        int
		out, errors string // patterns for all of stdout and stderr
	}{
		{[]string{"--version"}, cli.ExitOK, `^mlxcel-server ` + cli.Version + ` .*\n$`, `^$`},
		{[]string{"--help"}, cli.ExitOK, `Usage:`, `^$`},
		{nil, cli.ExitFailure, `^$`, `^mlxcel-server: the server comes with a later version.*\n$`},
		{[]string{"-m", "model"}, cli.ExitFailure, `^$`, `^mlxcel-server: the server comes with a later version.*\n$`},
	} {
		var out, errors bytes.Buffer
		require.Equal(t, test.code, Main(test.args, &out, &errors), test.args)
		require.Regexp(t, test.out, out.String())
		require.Regexp(t, test.errors, errors.String())
	}
}
