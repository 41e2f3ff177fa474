package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	testhub "mlxcel/tests/hub"
)

func TestDownloadOnATerminal(t *testing.T) {
	h, _ := useHub(t)
	h.Add("org/large", &testhub.Model{Files: map[string]*testhub.File{
		"config.json": testhub.Text(`{}`), "model.safetensors": testhub.LFS(make([]byte, 8<<20)),
	}})
	h.Misbehave = testhub.Contents(testhub.Drip(512<<10, 60*time.Millisecond)) // about a second, so that it can be seen
	p := startOnTerminal(t, start(t, "fake", "download", "org/large"))
	p.screen.expect(t, "model.safetensors")
	p.screen.expect(t, "all files")
	p.screen.expect(t, "/s, ")
	p.screen.expect(t, "2 files, 8 MB, 8 MB downloaded now")
	require.Equal(t, cli.ExitOK, exitCode(t, p.Wait()))

	// Ctrl-C, and the rest.
	h.Misbehave = testhub.Contents(testhub.Drip(256<<10, 100*time.Millisecond))
	p = startOnTerminal(t, start(t, "fake", "rm", "org/large"))
	p.screen.expect(t, "Delete org/large, 8 MB? [y/N] ")
	p.press(t, "y\r")
	require.Equal(t, cli.ExitOK, exitCode(t, p.Wait()))
	p = startOnTerminal(t, start(t, "fake", "download", "org/large"))
	p.screen.expect(t, "model.safetensors")
	time.Sleep(300 * time.Millisecond)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Equal(t, cli.ExitInterrupted, exitCode(t, p.Wait()))
	p.screen.expect(t, "the same command goes on")
	h.Misbehave = nil
	h.Body()
	p = startOnTerminal(t, start(t, "fake", "download", "org/large"))
	require.Equal(t, cli.ExitOK, exitCode(t, p.Wait()))
	require.Less(t, h.Body(), int64(8<<20))
}

func TestQuestionOnATerminal(t *testing.T) {
	useHub(t)
	p := startOnTerminal(t, start(t, "fake", "generate", "-m", "tiny-4bit", "-p", "hello"))
	p.screen.expect(t, "mlx-community/tiny-4bit is not here. Download ")
	p.screen.expect(t, "? [Y/n] ")
	p.press(t, "n\r")
	require.Equal(t, cli.ExitInterrupted, exitCode(t, p.Wait()))
	p = startOnTerminal(t, start(t, "fake", "generate", "-m", "tiny-4bit", "-p", "hello"))
	p.screen.expect(t, "? [Y/n] ")
	p.press(t, "\r")
	p.screen.expect(t, "answer to hello")
	require.Equal(t, cli.ExitOK, exitCode(t, p.Wait()))
}
