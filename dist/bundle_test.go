package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// makeLibrary compiles an empty shared library that needs others.
func makeLibrary(t *testing.T, compiler, path, runpath string, needs ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	source := write(t, "", t.TempDir(), "empty.cpp")
	args := []string{"-shared", "-nostdlib", "-o", path, source, "-Wl,--no-as-needed", "-Wl,-soname," + filepath.Base(path)}
	if runpath != "" {
		args = append(args, "-Wl,-rpath,"+runpath)
	}
	output, err := exec.Command(compiler, append(args, needs...)...).CombinedOutput()
	require.NoError(t, err, string(output))
}

// fakeBuild makes a wheel folder and a build folder with small libraries that
// refer to each other as the real ones do.
func fakeBuild(t *testing.T, p *project) (mlx, build string) {
	t.Helper()
	compiler, err := p.compiler(t.Context())
	require.NoError(t, err)
	mlx, build = t.TempDir(), t.TempDir()
	blas := filepath.Join(mlx, "mlx_cpu.libs", "libblas-0.so.3")
	library := filepath.Join(mlx, "mlx", "lib", "libmlx.so")
	makeLibrary(t, compiler, blas, "")
	makeLibrary(t, compiler, library, "$ORIGIN/../../mlx_cpu.libs", blas)
	makeLibrary(t, compiler, filepath.Join(build, shimFile), "$ORIGIN/mlx/lib", library)
	return mlx, build
}

func TestAssemble(t *testing.T) {
	p, log := newProject(t)
	mlx, build := fakeBuild(t, p)
	stale := write(t, "", p.bin("lib", "cpu", "mlx_cpu.libs", "libold.so"))
	require.NoError(t, p.assembleMLX(mlx, build))
	require.NoFileExists(t, stale)

	var m manifest
	text, err := os.ReadFile(p.bin("lib", "cpu", manifestFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &m))
	require.Equal(t, p.lock.MLX.Version, m.MLX)
	require.Len(t, m.Files, 3)
	for _, file := range m.Files {
		size, sum, err := hashFile(p.bin("lib", "cpu", filepath.FromSlash(file.Path)))
		require.NoError(t, err)
		require.Equal(t, file, manifestItem{file.Path, size, sum})
	}

	// Nothing is copied again, but what has changed is.
	log.Reset()
	before, err := os.Stat(p.bin("lib", "cpu", shimFile))
	require.NoError(t, err)
	require.NoError(t, p.assembleMLX(mlx, build))
	after, err := os.Stat(p.bin("lib", "cpu", shimFile))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.Empty(t, log.String())

	write(t, "damaged", p.bin("lib", "cpu", "mlx", "lib", "libmlx.so"))
	require.NoError(t, p.assembleMLX(mlx, build))
	require.Contains(t, log.String(), "assembling")
}

func TestIncompleteBundle(t *testing.T) {
	p, _ := newProject(t)
	mlx, build := fakeBuild(t, p)
	blas := filepath.Join(mlx, "mlx_cpu.libs", "libblas-0.so.3")
	require.NoError(t, os.Remove(blas))
	err := p.assembleMLX(mlx, build)
	require.ErrorContains(t, err, "libmlx.so needs libblas-0.so.3")

	// A library that looks outside the bundle.
	compiler, err := p.compiler(t.Context())
	require.NoError(t, err)
	makeLibrary(t, compiler, blas, "")
	makeLibrary(t, compiler, filepath.Join(build, shimFile), filepath.Join(mlx, "mlx", "lib"), filepath.Join(mlx, "mlx", "lib", "libmlx.so"))
	require.ErrorContains(t, p.assembleMLX(mlx, build), "outside the bundle")
}
