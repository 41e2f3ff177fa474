package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGlibc(t *testing.T) {
	const platform = "manylinux_2_35_x86_64"
	require.NoError(t, checkGlibc("glibc 2.35\n", platform))
	require.NoError(t, checkGlibc("glibc 3.0\n", platform))
	require.ErrorContains(t, checkGlibc("glibc 2.31\n", platform), "this system has glibc 2.31, and MLX's wheel needs 2.35")
	require.ErrorContains(t, checkGlibc("", platform), "does not use glibc")
	require.ErrorContains(t, checkGlibc("glibc 2.35", "win_amd64"), "manylinux")
}

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{
		"3.24.0": true, "3.25.1\nsuite": true, "4.0": true, "3.22.1": false, "2.99.0": false, "": false, "three.24": false,
	} {
		require.Equal(t, want, atLeast(version, 3, 24), version)
	}
}

func TestMissingCompiler(t *testing.T) {
	p, _ := newProject(t)
	t.Setenv("CXX", "")
	onlyPrograms(t, nil)
	_, err := p.compiler(t.Context())
	require.ErrorContains(t, err, "apt-get install g++")

	t.Setenv("CXX", "some-compiler")
	_, err = p.compiler(t.Context())
	require.ErrorContains(t, err, `"some-compiler" that CXX names`)

	t.Setenv("CXX", "")
	onlyPrograms(t, map[string]string{"g++": "exit 1"})
	_, err = p.compiler(t.Context())
	require.ErrorContains(t, err, "g++ cannot compile C++20")

	// A compiler that works is taken, although an earlier one does not.
	onlyPrograms(t, map[string]string{"c++": "exit 1", "clang++": "exit 0"})
	path, err := p.compiler(t.Context())
	require.NoError(t, err)
	require.Equal(t, "clang++", filepath.Base(path))
}

func TestMissingPython(t *testing.T) {
	p, _ := newProject(t)
	onlyPrograms(t, nil)
	require.ErrorContains(t, p.pipDownload(t.Context(), p.lock.MLX, t.TempDir()), "apt-get install python3")

	onlyPrograms(t, map[string]string{"python3": "exit 1"})
	require.ErrorContains(t, p.pipDownload(t.Context(), p.lock.MLX, t.TempDir()), "apt-get install python3-pip")
	_, err := p.environment(t.Context(), "test", pipSet{pins: []string{"a==1"}})
	require.ErrorContains(t, err, "apt-get install python3-venv")
}

// fakePython plays Python, venv and pip: it writes the arguments of each call
// of pip into a file, and fails where a file says so.
const fakePython = `
case "$2" in
venv) /bin/mkdir -p "$3/bin" && /bin/cp "$0" "$3/bin/python" ;;
pip) echo "$@" >> "$CALLS"; [ ! -e "$CALLS.fail" ] ;;
esac
`

func TestEnvironment(t *testing.T) {
	p, log := newProject(t)
	onlyPrograms(t, map[string]string{"python3": fakePython})
	calls := filepath.Join(t.TempDir(), "calls")
	t.Setenv("CALLS", calls)
	recorded := func() string {
		text, _ := os.ReadFile(calls)
		os.Remove(calls)
		return string(text)
	}
	short, long := pipSet{pins: []string{"a==1", "b==2"}}, pipSet{pins: []string{"c==3"}, deps: true}

	bin, err := p.environment(t.Context(), "test", short)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(bin, "python"))
	require.Regexp(t, `^-m pip install .*--no-deps a==1 b==2\n$`, recorded())

	log.Reset()
	_, err = p.environment(t.Context(), "test", short)
	require.NoError(t, err)
	require.Empty(t, recorded())
	require.Empty(t, log.String())

	// More is added in place; less is no reason to do anything.
	marker := write(t, "", bin, "marker")
	_, err = p.environment(t.Context(), "test", short, long)
	require.NoError(t, err)
	require.Regexp(t, `^-m pip install .* c==3\n$`, recorded())
	_, err = p.environment(t.Context(), "test", short)
	require.NoError(t, err)
	require.Empty(t, recorded())
	require.FileExists(t, marker)

	// Other pins: made anew. What fails counts as not done.
	write(t, "", calls+".fail")
	_, err = p.environment(t.Context(), "test", pipSet{pins: []string{"a==2"}})
	require.ErrorContains(t, err, "fetching a failed")
	require.NoFileExists(t, marker)
	require.NoError(t, os.Remove(calls+".fail"))
	recorded()
	_, err = p.environment(t.Context(), "test", pipSet{pins: []string{"a==2"}})
	require.NoError(t, err)
	require.Contains(t, recorded(), "a==2")
}

func TestBuildToolsFromPip(t *testing.T) {
	p, _ := newProject(t)
	t.Setenv("CXX", "")
	t.Setenv("CALLS", filepath.Join(t.TempDir(), "calls"))
	onlyPrograms(t, map[string]string{
		"python3": fakePython,
		"g++":     "exit 0",
		"cmake":   "echo cmake version 3.22.1", // too old
		"ctest":   "exit 0",
	})
	tools, err := p.buildTools(t.Context(), linuxTarget)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(p.venv("cmake"), "bin", "cmake"), tools.cmake)
	require.Equal(t, filepath.Join(p.venv("cmake"), "bin", "ctest"), tools.ctest)
	require.Equal(t, filepath.Join(p.venv("ninja"), "bin", "ninja"), tools.ninja)
}
