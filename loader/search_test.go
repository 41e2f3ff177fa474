package loader

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFolders(t *testing.T) {
	t.Setenv("MLXCEL_BUNDLE", "")
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	program := filepath.Join(base, "app", "bin", "mlxcel")
	require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
	require.NoError(t, os.WriteFile(program, nil, 0o755))
	executable := func() (string, error) { return program, nil }
	beside := []string{filepath.Join(base, "app", "bin", "lib", "cpu"), filepath.Join(base, "app", "lib", "cpu")}

	dirs, err := folders("cpu", "", executable)
	require.NoError(t, err)
	require.Equal(t, beside, dirs)

	// A link in a folder of PATH is followed.
	link := filepath.Join(base, "mlxcel")
	_ = os.Symlink(program, link) // Windows may forbid it, and Wine only says that it did
	if _, err := os.Readlink(link); err == nil {
		dirs, err = folders("cpu", "", func() (string, error) { return link, nil })
		require.NoError(t, err)
		require.Equal(t, beside, dirs)
	}

	under := func(root string) []string {
		return []string{filepath.Join(root, "cpu"), filepath.Join(root, "lib", "cpu"), root}
	}
	t.Setenv("MLXCEL_BUNDLE", filepath.Join(base, "env"))
	dirs, err = folders("cpu", "", executable)
	require.NoError(t, err)
	require.Equal(t, under(filepath.Join(base, "env")), dirs)

	dirs, err = folders("cpu", filepath.Join(base, "option"), executable)
	require.NoError(t, err)
	require.Equal(t, under(filepath.Join(base, "option")), dirs)

	// A relative name counts from the working folder, and becomes absolute at once.
	t.Chdir(base)
	dirs, err = folders("cpu", "here", executable)
	require.NoError(t, err)
	require.Equal(t, under(filepath.Join(base, "here")), dirs)

	t.Setenv("MLXCEL_BUNDLE", "")
	_, err = folders("cpu", "", func() (string, error) { return "", errors.New("no /proc") })
	require.EqualError(t, err, "cannot tell where this program lies: no /proc")
}

var mlx = variants[3]

func TestFind(t *testing.T) {
	root := t.TempDir()
	first, second, third := filepath.Join(root, "cpu", shimFile), filepath.Join(root, "lib", "cpu", shimFile), filepath.Join(root, shimFile)
	write := func(path string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o644))
	}
	// The last place is filled first, so each one found has priority over the former.
	require.NoError(t, os.MkdirAll(first, 0o755)) // a folder is no library
	for _, path := range []string{third, second} {
		write(path)
		s := &search{}
		dir, err := s.find(mlx, root)
		require.NoError(t, err)
		require.Equal(t, filepath.Dir(path), dir)
		require.Equal(t, Attempt{first, "not a file"}, s.attempts[0])
	}
	require.NoError(t, os.Remove(first))
	write(first)
	dir, err := (&search{}).find(mlx, root)
	require.NoError(t, err)
	require.Equal(t, filepath.Dir(first), dir)
}

func TestFindNothing(t *testing.T) {
	root := t.TempDir()
	dir, err := (&search{}).find(mlx, root)
	require.NoError(t, err)
	require.Empty(t, dir)
	_, err = Open(Options{Bundle: root, Backend: "mlx"})
	var open *OpenError
	require.ErrorAs(t, err, &open)
	require.Len(t, open.Attempts, 3)
	for i, path := range []string{filepath.Join("cpu", shimFile), filepath.Join("lib", "cpu", shimFile), shimFile} {
		require.Equal(t, filepath.Join(root, path), open.Attempts[i].Path)
		require.NotEmpty(t, open.Attempts[i].Result)
		require.ErrorContains(t, err, open.Attempts[i].Path+" ("+open.Attempts[i].Result+")")
	}
	require.ErrorContains(t, err, "unzip the whole archive")
}

func TestSuitable(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    []variant
	}{
		{Options{}, variants},
		{Options{Backend: "auto", Device: "auto"}, variants},
		{Options{Device: "cpu"}, variants[2:]},
		{Options{Device: "cuda"}, variants[:2]},
		{Options{Device: "cuda:1", Backend: "mlx"}, variants[:2]},
		{Options{Device: "GPU-1234"}, variants[:2]},
		{Options{Backend: "native"}, variants[2:3]},
		{Options{Backend: "mlx", Device: "cpu"}, variants[3:]},
	} {
		fit, err := suitable(c.options)
		require.NoError(t, err)
		require.Equal(t, c.want, fit)
	}
	_, err := suitable(Options{Device: "cuda", Backend: "native"})
	require.EqualError(t, err, `this release has no backend "native" for the device "cuda", only mlx on cuda, native on cpu, mlx on cpu`)
	_, err = Open(Options{Backend: "rocm"})
	require.EqualError(t, err, `this release has no backend "rocm" for the device "auto", only mlx on cuda, native on cpu, mlx on cpu`)
	for _, device := range []string{"tpu", "cuda:", "cuda:-1", "cuda:01", "cuda:x", "GPU-"} {
		require.ErrorContains(t, CheckDevice(device), "want auto, cpu, cuda, cuda:N", device)
	}
}
