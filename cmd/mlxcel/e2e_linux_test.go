package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/tests/terminal"
	"mlxcel/tests/testenv"
)

func TestRealCtrlC(t *testing.T) {
	c := start(t, "real", "generate", "-p", "Tell me a long story.", "--ignore-eos", "--bundle", testenv.Bundle(t), "-m", testenv.Model(t))
	var out, errs terminal.Output
	c.Stdout, c.Stderr = &out, &errs
	require.NoError(t, c.Start())
	out.Expect(t, " ")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Equal(t, cli.ExitInterrupted, terminal.ExitCode(t, c.Wait()))
	require.Contains(t, errs.String(), "first token after")
}

func TestRealFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	for _, format := range []string{"--json=false", "--json"} {
		c := start(t, "real", "generate", "-n", "2", "-p", "Hello", format, "--bundle", testenv.Bundle(t), "-m", testenv.Model(t))
		var errs terminal.Output
		c.Stdout, c.Stderr = full, &errs
		require.Equal(t, cli.ExitFailure, terminal.ExitCode(t, c.Run()))
		require.Regexp(t, `^mlxcel: the answer cannot be written: .*no space left on device\n$`, errs.String())
	}
}
