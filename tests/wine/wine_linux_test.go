package wine

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/terminal"
	"mlxcel/tests/testenv"
)

const question = "What is the capital of France?"

// long reports whether tests may take long and much space.
func long() bool { return os.Getenv("MLXCEL_TEST_LONG") == "1" }

// mlxcel is mlxcel.exe of the bundle.
func mlxcel(t *testing.T) string { return filepath.Join(testenv.WindowsBundle(t), "mlxcel.exe") }

// link puts a file under another name, without a copy where the disk can.
func link(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	if os.Link(from, to) == nil {
		return
	}
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, data, 0o755))
}

// bundleIn puts the bundle into a folder and returns the path of its mlxcel.exe. Its files must not be written to: they
// may be those of the bundle itself. Removing one, or putting another in its place, is fine.
func bundleIn(t *testing.T, dir string) string {
	t.Helper()
	from := testenv.WindowsBundle(t)
	require.NoError(t, filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			inside, _ := filepath.Rel(from, path)
			link(t, path, filepath.Join(dir, inside))
		}
		return err
	}))
	return filepath.Join(dir, "mlxcel.exe")
}

// replace puts other contents in the place of a file that may have more names.
func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, data, 0o755))
}

// listing are the files below a folder with their sizes and times.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		files[path] = info.Mode().String() + info.ModTime().String()
		return nil
	}))
	return files
}

// console is a program on a console.
type console struct {
	*terminal.Process
	seen int // bytes of the plain text that earlier calls of expect went past
}

// onConsole starts a program on a console that is wide enough for its lines.
func onConsole(t *testing.T, program string, args ...string) *console {
	t.Helper()
	cmd := testenv.Wine(t).Command(program, args...)
	cmd.Env = append(cmd.Env, "MLXCEL_HISTORY=")
	c := &console{Process: terminal.Start(t, cmd, 200)}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, unless the test failed
	return c
}

// What Wine's console tells a terminal beside the text; it moves to the right in place of writing a space.
var (
	space    = regexp.MustCompile(`\x1b\[1C`)
	controls = regexp.MustCompile(`\x1b\[[?0-9;]*[A-Za-z]|\r`)
)

// text is what was shown so far.
func (c *console) text() string {
	return controls.ReplaceAllString(space.ReplaceAllString(c.Screen.String(), " "), "")
}

// expect waits until a part is shown behind those that were expected before.
func (c *console) expect(t *testing.T, part string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text := c.text()
		if i := strings.Index(text[min(c.seen, len(text)):], part); i >= 0 {
			c.seen += i + len(part)
			return
		}
		if time.Now().After(end) {
			require.Failf(t, "it does not come", "%q in %q", part, text)
		}
	}
}

// exitCode waits for the end, for at most a minute.
func (c *console) exitCode(t *testing.T) int {
	t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = c.Process.Process.Kill() })
	err := c.Wait()
	require.True(t, late.Stop(), "it does not end; it showed %q", c.text())
	return terminal.ExitCode(t, err)
}
