package wine

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	testhub "mlxcel/tests/hub"
	"mlxcel/tests/testenv"
)

// A download has the layout of a system without symbolic links: the files themselves lie in the snapshot, and what two
// revisions share is not fetched again.
func TestDownload(t *testing.T) {
	wine := testenv.Wine(t)
	model, err := os.Open(testenv.Model(t))
	require.NoError(t, err)
	defer model.Close()
	info, err := model.Stat()
	require.NoError(t, err)
	h := testhub.Start(t)
	files := map[string]*testhub.File{"README.md": testhub.Text("# First\n"), "small-Q4_1.gguf": testhub.OnDisk(t, model, info.Size())}
	first := h.Add("org/Small-GGUF", &testhub.Model{Files: files})

	cache := filepath.Join(t.TempDir(), odd)
	run := func(args ...string) string {
		t.Helper()
		cmd := wine.Command(mlxcel(t), args...)
		cmd.Env = append(cmd.Env, "HF_HOME="+wine.Path(cache), "HF_ENDPOINT="+h.URL, "NO_PROXY=127.0.0.1,localhost")
		out, err := cmd.Output()
		exit, _ := err.(*exec.ExitError)
		if err != nil {
			require.NotNil(t, exit, "%v", err)
			require.NoError(t, err, string(exit.Stderr))
		}
		return string(out)
	}
	requireSnapshot := func(m *testhub.Model) {
		t.Helper()
		snapshot := filepath.Join(cache, "hub", "models--org--Small-GGUF", "snapshots", m.Commit)
		for name, f := range m.Files {
			info, err := os.Lstat(filepath.Join(snapshot, name))
			require.NoError(t, err)
			require.True(t, info.Mode().IsRegular(), "%s is %s", name, info.Mode())
			require.Equal(t, f.Size, info.Size())
		}
		require.NoError(t, filepath.WalkDir(filepath.Join(cache, "hub"), func(path string, e fs.DirEntry, err error) error {
			require.NotRegexp(t, `mlxcel-|\.tmp$|\.link-`, path, "nothing unfinished is left")
			return err
		}))
		blobs, err := os.ReadDir(filepath.Join(cache, "hub", "models--org--Small-GGUF", "blobs"))
		require.NoError(t, err)
		require.Empty(t, blobs)
	}

	run("download", "org/Small-GGUF")
	requireSnapshot(first)
	require.Positive(t, h.Body())
	run("download", "org/Small-GGUF")
	require.Zero(t, h.Body(), "all is there")

	second := h.Add("org/Small-GGUF", &testhub.Model{Files: map[string]*testhub.File{
		"README.md": testhub.Text("# Second\n"), "small-Q4_1.gguf": files["small-Q4_1.gguf"],
	}})
	run("download", "org/Small-GGUF")
	require.Less(t, h.Body(), int64(1000))
	requireSnapshot(second)

	require.Contains(t, run("generate", "--offline", "-n", "8", "-p", question, "-m", "org/Small-GGUF"), "The capital of France is Paris")
	require.Contains(t, run("list"), "org/Small-GGUF")
	run("rm", "--yes", "org/Small-GGUF")
	require.NoDirExists(t, filepath.Join(cache, "hub", "models--org--Small-GGUF"))
}
