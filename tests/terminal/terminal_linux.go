// Package terminal runs programs on a terminal of their own, for tests: it types, and reads the screen.
package terminal

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
)

// Output collects what a process writes while a test looks at it. It may be the Stdout or Stderr of an exec.Cmd.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is what has come so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Expect waits until the output holds a part, and fails the test when that takes longer than a minute.
func (o *Output) Expect(t testing.TB, part string) {
	t.Helper()
	o.ExpectBehind(t, 0, part)
}

// ExpectBehind is Expect for what comes behind the first bytes of the output, and returns where the part ends.
func (o *Output) ExpectBehind(t testing.TB, from int, part string) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		text := o.String()
		if i := strings.Index(text[from:], part); i >= 0 {
			return from + i + len(part)
		}
		if time.Now().After(end) {
			require.Failf(t, "it does not come", "%q in %q", part, text[from:])
		}
	}
}

// Process is a process on a terminal.
type Process struct {
	*exec.Cmd
	Keys   *os.File // the terminal's other end
	Screen Output   // everything that was written to the terminal
}

// Start starts a command on a new terminal of 24 lines and so many columns, which is its input, output and errors. It
// skips the test where there are no pseudo-terminals.
func Start(t testing.TB, c *exec.Cmd, columns uint16) *Process {
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
	require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))

	p := &Process{Cmd: c, Keys: master}
	if c.Env == nil {
		c.Env = os.Environ()
	}
	c.Env = append(c.Env, "TERM=xterm")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, c.Start())
	go func() { _, _ = io.Copy(&p.Screen, master) }() // ends with an error when the terminal goes
	return p
}

// Press types keys.
func (p *Process) Press(t testing.TB, keys string) {
	t.Helper()
	_, err := p.Keys.WriteString(keys)
	require.NoError(t, err)
}

// Keys.
const (
	Enter = "\r"
	CtrlC = "\x03"
	CtrlD = "\x04"
	Up    = "\x1b[A"
)

// ExitCode is the exit code that the error of Run or Wait tells of.
func ExitCode(t testing.TB, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	return exit.ExitCode()
}
