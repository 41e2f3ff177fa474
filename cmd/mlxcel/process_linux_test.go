package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mlxcel/cmd/internal/cli"
)

// lockedBuffer collects what a process writes while the test looks at it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// expect waits until the text holds a part, and fails the test when that takes long.
func (b *lockedBuffer) expect(t *testing.T, part string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(b.String(), part) }, 30*time.Second, 5*time.Millisecond,
		"%q does not come in %q", part, textOf{b})
}

// textOf is looked at when the wait failed, not before.
type textOf struct{ *lockedBuffer }

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	return exit.ExitCode()
}

func TestCtrlC(t *testing.T) {
	c := start(t, "fake", "generate", "-p", "slow")
	var out, errs lockedBuffer
	c.Stdout, c.Stderr = &out, &errs
	require.NoError(t, c.Start())
	out.expect(t, "word word ")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Equal(t, cli.ExitInterrupted, exitCode(t, c.Wait()))
	require.True(t, strings.HasSuffix(out.String(), "\n"))
	require.Contains(t, errs.String(), "first token after", "the figures")
	require.NotContains(t, errs.String(), "mlxcel:")
}

func TestSecondCtrlC(t *testing.T) {
	c := start(t, "deaf", "generate", "-p", "slow")
	var out lockedBuffer
	c.Stdout = &out
	require.NoError(t, c.Start())
	out.expect(t, "word ")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	seen := len(out.String())
	require.Eventually(t, func() bool { return len(out.String()) > seen+len("word word word ") }, 30*time.Second, time.Millisecond, "it is deaf")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Equal(t, cli.ExitInterrupted, exitCode(t, c.Wait()))
}

// terminalProcess is a process on a terminal of its own.
type terminalProcess struct {
	*exec.Cmd
	keys   *os.File
	screen lockedBuffer
}

func startOnTerminal(t *testing.T, c *exec.Cmd) *terminalProcess {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer slave.Close()
	require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))

	p := &terminalProcess{Cmd: c, keys: master}
	c.Env = append(c.Env, "TERM=xterm")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, c.Start())
	go func() { _, _ = io.Copy(&p.screen, master) }() // ends with an error when the terminal goes
	return p
}

// press types keys.
func (p *terminalProcess) press(t *testing.T, keys string) {
	t.Helper()
	_, err := p.keys.WriteString(keys)
	require.NoError(t, err)
}

func TestChatOnATerminal(t *testing.T) {
	const enter, ctrlC, ctrlD, up = "\r", "\x03", "\x04", "\x1b[A"
	history := t.TempDir() + "/history"
	c := start(t, "fake", "chat")
	c.Env = append(c.Env, "MLXCEL_HISTORY="+history)
	p := startOnTerminal(t, c)
	p.screen.expect(t, "fake-1B; /help for help")
	p.press(t, "héllo"+enter)
	p.screen.expect(t, "answer to héllo")
	p.press(t, `"""`+enter+"a"+enter+`b"""`+enter)
	p.screen.expect(t, "answer to a\r\nb")

	p.press(t, "slow"+enter)
	p.screen.expect(t, "word word ")
	p.press(t, ctrlC)
	p.screen.expect(t, "(stopped)")
	p.press(t, "still there"+enter)
	p.screen.expect(t, "answer to still there")
	p.press(t, ctrlD)
	require.Equal(t, cli.ExitOK, exitCode(t, p.Wait()))
	typed, err := os.ReadFile(history)
	require.NoError(t, err)
	require.Equal(t, "héllo\n\"\"\"\na\nb\"\"\"\nslow\nstill there\n", string(typed))

	// Another session has the lines of the first one.
	c = start(t, "fake", "chat")
	c.Env = append(c.Env, "MLXCEL_HISTORY="+history)
	p = startOnTerminal(t, c)
	p.screen.expect(t, "/help for help")
	p.press(t, up+enter)
	p.screen.expect(t, "answer to still there\r\n> ")
	p.press(t, ctrlC)
	require.Equal(t, cli.ExitOK, exitCode(t, p.Wait()))
}

func TestProgressOnATerminal(t *testing.T) {
	p := startOnTerminal(t, start(t, "fake", "generate", "-p", "hello"))
	require.Equal(t, cli.ExitOK, exitCode(t, p.Wait()))
	p.screen.expect(t, "loading ")
	p.screen.expect(t, "answer to hello")
	p.screen.expect(t, "first token after")

	p = startOnTerminal(t, start(t, "fake", "generate"))
	require.Equal(t, cli.ExitUsage, exitCode(t, p.Wait()), "it does not wait for a prompt to be typed")
	p.screen.expect(t, "no prompt is given")
}

// A signal that ends the program at the prompt leaves the terminal as it was: with echo.
func TestSignalGivesTheTerminalBack(t *testing.T) {
	p := startOnTerminal(t, start(t, "fake", "chat"))
	p.screen.expect(t, "/help for help")
	p.press(t, "hi\r")
	p.screen.expect(t, "answer to hi\r\n> ")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 128+int(syscall.SIGTERM), exitCode(t, p.Wait()))
	mode, err := unix.IoctlGetTermios(int(p.keys.Fd()), unix.TCGETS)
	require.NoError(t, err)
	require.NotZero(t, mode.Lflag&unix.ECHO)
	require.NotZero(t, mode.Lflag&unix.ICANON)
}
