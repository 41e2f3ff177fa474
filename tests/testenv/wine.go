package testenv

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// windowsRemedy ends every reason for a missing thing of the Windows tests.
const windowsRemedy = "run `go run ./dist setup --windows` once"

// A WineRunner runs Windows programs.
type WineRunner struct {
	program, prefix string
}

// withoutWindows skips the test if the run was asked to leave Windows out.
func withoutWindows(t testing.TB) {
	t.Helper()
	if os.Getenv("MLXCEL_TEST_WINDOWS") == "0" {
		t.Skip("MLXCEL_TEST_WINDOWS=0: the tests of the bundle for Windows are left out")
	}
}

// Wine returns a Wine with a drive C that `go run ./dist setup --windows` has
// prepared. Tests share it, so a test that changes more than its own folders
// works on a copy.
func Wine(t testing.TB) *WineRunner {
	t.Helper()
	withoutWindows(t)
	program, err := WineProgram()
	if err != nil {
		missing(t, "Wine", err.Error(), windowsRemedy)
	}
	need(t, "Wine's prefix", filepath.Join(WinePrefix(), ".prepared"), windowsRemedy)
	return &WineRunner{program, WinePrefix()}
}

// Command prepares a run of the Windows program at a path of this system. The
// caller may add to its Env.
func (w *WineRunner) Command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(w.program, append([]string{program}, args...)...)
	cmd.Env = WineEnvironment(w.prefix)
	return cmd
}

// Run runs the Windows program at a path of this system, for at most two
// minutes, and returns what it wrote and its exit code.
func (w *WineRunner) Run(t testing.TB, program string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := w.Command(program, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatalf("Wine cannot be started: %v", err)
	}
	late := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		t.Fatalf("%s %q did not end in two minutes; it wrote\n%s%s", program, args, &out, &errs)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", program, args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// DriveC returns the folder that Windows programs see as C:\.
func (w *WineRunner) DriveC() string { return filepath.Join(w.prefix, "drive_c") }

// Path returns an absolute path of this system as Windows programs see it.
func (w *WineRunner) Path(path string) string {
	if inside, ok := strings.CutPrefix(path, w.DriveC()+"/"); ok {
		return `C:\` + strings.ReplaceAll(inside, "/", `\`)
	}
	return WindowsPath(path)
}

// WindowsPath returns an absolute path of this system as Windows programs see it under any Wine.
func WindowsPath(path string) string { return `Z:` + strings.ReplaceAll(path, "/", `\`) }

// WindowsBundle returns the unpacked bundle for Windows, with MLX for the CPU:
// mlxcel.exe, mlxcel-server.exe and lib.
func WindowsBundle(t testing.TB) string {
	t.Helper()
	withoutWindows(t)
	dir := filepath.Join(Root(), "bin", "windows")
	need(t, "the bundle for Windows", filepath.Join(dir, "mlxcel.exe"), windowsRemedy)
	return dir
}

// WinePrefix returns the folder of the prepared Wine, which need not exist.
func WinePrefix() string { return filepath.Join(CacheDir(), "wine") }

// WineProgram returns the path of the 64-bit Wine.
func WineProgram() (string, error) {
	for _, name := range []string{"wine64", "/usr/lib/wine/wine64", "wine"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Wine, which runs the programs for Windows")
}

// WineServer returns the path of the process that Wine's programs share.
func WineServer() string {
	for _, name := range []string{"wineserver", "/usr/lib/wine/wineserver64"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return "wineserver"
}

// WineEnvironment is the environment of a run of Wine with the given prefix:
// quiet, without a display, and without questions about parts that nobody needs.
func WineEnvironment(prefix string) []string {
	var env []string
	for _, e := range os.Environ() {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "DISPLAY", "WAYLAND_DISPLAY", "MLXCEL_BUNDLE", "MLXCEL_CACHE", "WINEPREFIX", "WINEDEBUG", "WINEDLLOVERRIDES":
		default:
			env = append(env, e)
		}
	}
	return append(env, "WINEPREFIX="+prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml=;winemenubuilder.exe=d")
}

// Copy returns a Wine with a drive C of its own, which goes with the test: for
// tests that change what belongs to Windows.
func (w *WineRunner) Copy(t testing.TB) *WineRunner {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "wine")
	windows := filepath.Join(w.prefix, "drive_c", "windows") + string(filepath.Separator)
	err := filepath.WalkDir(w.prefix, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := prefix + strings.TrimPrefix(path, w.prefix)
		switch {
		case entry.IsDir():
			return os.MkdirAll(to, 0o755)
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		case strings.HasPrefix(path, windows) && os.Link(path, to) == nil: // nothing writes to these
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o755)
	})
	if err != nil {
		t.Fatalf("Wine's drive cannot be copied: %v", err)
	}
	t.Cleanup(func() { // what is left of it holds files of the folder open
		stop := exec.Command(WineServer(), "-k")
		stop.Env = WineEnvironment(prefix)
		_ = stop.Run()
	})
	return &WineRunner{w.program, prefix}
}

// System32 returns the folder of the libraries of Windows, and of drivers.
func (w *WineRunner) System32() string { return filepath.Join(w.DriveC(), "windows", "system32") }
