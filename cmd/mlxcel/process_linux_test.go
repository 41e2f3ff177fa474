package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mlxcel/cmd/internal/cli"
	"mlxcel/tests/terminal"
)

func TestCtrlC(t *testing.T) {
	c := start(t, "fake", "generate", "-p", "slow")
	var out, errs terminal.Output
	c.Stdout, c.Stderr = &out, &errs
	require.NoError(t, c.Start())
	out.Expect(t, "word word ")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Equal(t, cli.ExitInterrupted, terminal.ExitCode(t, c.Wait()))
	require.True(t, strings.HasSuffix(out.String(), "\n"))
	require.Contains(t, errs.String(), "first token after", "the figures")
	require.NotContains(t, errs.String(), "mlxcel:")
}

func TestSecondCtrlC(t *testing.T) {
	c := start(t, "deaf", "generate", "-p", "slow")
	var out terminal.Output
	c.Stdout = &out
	require.NoError(t, c.Start())
	out.Expect(t, "word ")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	seen := len(out.String())
	require.Eventually(t, func() bool { return len(out.String()) > seen+len("word word word ") }, 30*time.Second, time.Millisecond, "it is deaf")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Equal(t, cli.ExitInterrupted, terminal.ExitCode(t, c.Wait()))
}

func TestChatOnATerminal(t *testing.T) {
	history := t.TempDir() + "/history"
	c := start(t, "fake", "chat")
	c.Env = append(c.Env, "MLXCEL_HISTORY="+history)
	p := terminal.Start(t, c, 80)
	p.Screen.Expect(t, "fake-1B; /help for help")
	p.Press(t, "héllo"+terminal.Enter)
	p.Screen.Expect(t, "answer to héllo")
	p.Press(t, `"""`+terminal.Enter+"a"+terminal.Enter+`b"""`+terminal.Enter)
	p.Screen.Expect(t, "answer to a\r\nb")

	p.Press(t, "slow"+terminal.Enter)
	p.Screen.Expect(t, "word word ")
	p.Press(t, terminal.CtrlC)
	p.Screen.Expect(t, "(stopped)")
	p.Press(t, "still there"+terminal.Enter)
	p.Screen.Expect(t, "answer to still there")
	p.Press(t, terminal.CtrlD)
	require.Equal(t, cli.ExitOK, terminal.ExitCode(t, p.Wait()))
	typed, err := os.ReadFile(history)
	require.NoError(t, err)
	require.Equal(t, "héllo\n\"\"\"\na\nb\"\"\"\nslow\nstill there\n", string(typed))

	// Another session has the lines of the first one.
	c = start(t, "fake", "chat")
	c.Env = append(c.Env, "MLXCEL_HISTORY="+history)
	p = terminal.Start(t, c, 80)
	p.Screen.Expect(t, "/help for help")
	p.Press(t, terminal.Up+terminal.Enter)
	p.Screen.Expect(t, "answer to still there\r\n> ")
	p.Press(t, terminal.CtrlC)
	require.Equal(t, cli.ExitOK, terminal.ExitCode(t, p.Wait()))
}

func TestProgressOnATerminal(t *testing.T) {
	p := terminal.Start(t, start(t, "fake", "generate", "-p", "hello"), 80)
	require.Equal(t, cli.ExitOK, terminal.ExitCode(t, p.Wait()))
	p.Screen.Expect(t, "loading ")
	p.Screen.Expect(t, "answer to hello")
	p.Screen.Expect(t, "first token after")

	p = terminal.Start(t, start(t, "fake", "generate"), 80)
	require.Equal(t, cli.ExitUsage, terminal.ExitCode(t, p.Wait()), "it does not wait for a prompt to be typed")
	p.Screen.Expect(t, "no prompt is given")
}

// A signal that ends the program at the prompt leaves the terminal as it was: with echo.
func TestSignalGivesTheTerminalBack(t *testing.T) {
	p := terminal.Start(t, start(t, "fake", "chat"), 80)
	p.Screen.Expect(t, "/help for help")
	p.Press(t, "hi\r")
	p.Screen.Expect(t, "answer to hi\r\n> ")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+int(syscall.SIGTERM), terminal.ExitCode(t, p.Wait()))
	mode, err := unix.IoctlGetTermios(int(p.Keys.Fd()), unix.TCGETS)
	require.NoError(t, err)
	require.NotZero(t, mode.Lflag&unix.ECHO)
	require.NotZero(t, mode.Lflag&unix.ICANON)
}
