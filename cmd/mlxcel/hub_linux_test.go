package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	testhub "mlxcel/tests/hub"
	"mlxcel/tests/terminal"
)

func TestDownloadOnATerminal(t *testing.T) {
	h, _ := useHub(t)
	h.Add("org/large", &testhub.Model{Files: map[string]*testhub.File{
		"config.json": testhub.Text(`{}`), "model.safetensors": testhub.LFS(make([]byte, 8<<20)),
	}})
	h.Misbehave = testhub.Contents(testhub.Drip(512<<10, 60*time.Millisecond)) // about a second, so that it can be seen
	p := terminal.Start(t, start(t, "fake", "download", "org/large"), 80)
	p.Screen.Expect(t, "model.safetensors")
	p.Screen.Expect(t, "all files")
	p.Screen.Expect(t, "/s, ")
	p.Screen.Expect(t, "2 files, 8 MB, 8 MB downloaded now")
	require.Equal(t, cli.ExitOK, terminal.ExitCode(t, p.Wait()))

	// Ctrl-C, and the rest.
	h.Misbehave = testhub.Contents(testhub.Drip(256<<10, 100*time.Millisecond))
	p = terminal.Start(t, start(t, "fake", "rm", "org/large"), 80)
	p.Screen.Expect(t, "Delete org/large, 8 MB? [y/N] ")
	p.Press(t, "y\r")
	require.Equal(t, cli.ExitOK, terminal.ExitCode(t, p.Wait()))
	p = terminal.Start(t, start(t, "fake", "download", "org/large"), 80)
	p.Screen.Expect(t, "model.safetensors")
	time.Sleep(300 * time.Millisecond)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, cli.ExitInterrupted, terminal.ExitCode(t, p.Wait()))
	p.Screen.Expect(t, "the same command goes on")
	h.Misbehave = nil
	h.Body()
	p = terminal.Start(t, start(t, "fake", "download", "org/large"), 80)
	require.Equal(t, cli.ExitOK, terminal.ExitCode(t, p.Wait()))
	require.Less(t, h.Body(), int64(8<<20))
}

func TestQuestionOnATerminal(t *testing.T) {
	useHub(t)
	p := terminal.Start(t, start(t, "fake", "generate", "-m", "tiny-4bit", "-p", "hello"), 80)
	p.Screen.Expect(t, "mlx-community/tiny-4bit is not here. Download ")
	p.Screen.Expect(t, "? [Y/n] ")
	p.Press(t, "n\r")
	require.Equal(t, cli.ExitInterrupted, terminal.ExitCode(t, p.Wait()))
	p = terminal.Start(t, start(t, "fake", "generate", "-m", "tiny-4bit", "-p", "hello"), 80)
	p.Screen.Expect(t, "? [Y/n] ")
	p.Press(t, "\r")
	p.Screen.Expect(t, "answer to hello")
	require.Equal(t, cli.ExitOK, terminal.ExitCode(t, p.Wait()))
}
