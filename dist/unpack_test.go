package main

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnzip(t *testing.T) {
	dir := t.TempDir()
	archive := write(t, string(makeZip(t, member{"a/b/c.txt", "deep"}, member{"top.txt", "top"})), dir, "x.whl")
	require.NoError(t, unzip(archive, filepath.Join(dir, "out")))
	text, err := os.ReadFile(filepath.Join(dir, "out", "a", "b", "c.txt"))
	require.NoError(t, err)
	require.Equal(t, "deep", string(text))

	require.NoError(t, unzipOne(archive, "c.txt", filepath.Join(dir, "c.txt")))
	require.FileExists(t, filepath.Join(dir, "c.txt"))
	require.ErrorContains(t, unzipOne(archive, "d.txt", filepath.Join(dir, "d.txt")), "holds no d.txt")
}

func TestUnpackRefusesToLeaveItsFolder(t *testing.T) {
	for _, name := range []string{"../evil", "/evil", "a/../../evil", ".."} {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		require.NoError(t, os.Mkdir(out, 0o755))
		archive := write(t, string(makeZip(t, member{name, "evil"})), dir, "x.whl")
		require.ErrorContains(t, unzip(archive, out), "outside its folder", name)
		require.NoFileExists(t, filepath.Join(dir, "evil"))
	}
	dir := t.TempDir()
	archive := write(t, string(makeTar(t, member{"package/models/..", "evil"})), dir, "x.tgz")
	require.ErrorContains(t, untar(archive, dir, func(string) bool { return true }), "outside its folder")
}

func TestUnzipRefusesLinks(t *testing.T) {
	var data bytes.Buffer
	writer := zip.NewWriter(&data)
	header := &zip.FileHeader{Name: "link"}
	header.SetMode(fs.ModeSymlink | 0o777)
	file, err := writer.CreateHeader(header)
	require.NoError(t, err)
	_, err = file.Write([]byte("/etc/passwd"))
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	dir := t.TempDir()
	require.ErrorContains(t, unzip(write(t, data.String(), dir, "x.whl"), dir), "not a plain file")
}

func TestUnpackDamagedArchives(t *testing.T) {
	dir := t.TempDir()
	all := func(string) bool { return true }
	whole := string(makeTar(t, member{"package/models/a", strings.Repeat("abc", 1000)}))
	require.Error(t, unzip(write(t, "no zip", dir, "x.whl"), dir))
	require.Error(t, untar(write(t, "no gzip", dir, "x.tgz"), t.TempDir(), all))
	require.Error(t, untar(write(t, whole[:len(whole)/2], dir, "y.tgz"), t.TempDir(), all))
	require.NoError(t, untar(write(t, whole, dir, "z.tgz"), t.TempDir(), all))
}

func FuzzInside(f *testing.F) {
	for _, name := range []string{"a/b", "../a", "/a", "a/../../b", "./..", "./", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		path, err := inside("/some/folder", name)
		if err == nil && !strings.HasPrefix(path, "/some/folder/") {
			t.Fatalf("%q leads to %q", name, path)
		}
	})
}
