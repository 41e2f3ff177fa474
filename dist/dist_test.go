package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// newProject returns a project in temporary folders with the repository's lock
// file and without a package client, and what it says.
func newProject(t *testing.T) (*project, *bytes.Buffer) {
	t.Helper()
	pinned, err := readLock("lock.json")
	require.NoError(t, err)
	log := &bytes.Buffer{}
	p := &project{root: t.TempDir(), cache: t.TempDir(), lock: pinned, log: log}
	p.fetch = func(_ context.Context, a artifact, _ string) error {
		t.Fatalf("%s was fetched", a)
		return nil
	}
	require.NoError(t, os.MkdirAll(p.temporary(), 0o755))
	return p, log
}

// serve makes p fetch content as the file of any artifact, and counts.
func serve(p *project, content []byte) (count *int) {
	count = new(int)
	p.fetch = func(_ context.Context, a artifact, dir string) error {
		*count++
		return os.WriteFile(filepath.Join(dir, a.File), content, 0o644)
	}
	return count
}

func sha(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// pinned returns an artifact that pins content.
func pinned(content []byte) artifact {
	return artifact{Client: "pip", Name: "some-package", Version: "1.0", File: "some.whl", Size: int64(len(content)), SHA256: sha(content)}
}

type member struct{ name, content string }

func makeZip(t *testing.T, members ...member) []byte {
	t.Helper()
	var data bytes.Buffer
	writer := zip.NewWriter(&data)
	for _, m := range members {
		file, err := writer.Create(m.name)
		require.NoError(t, err)
		_, err = file.Write([]byte(m.content))
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
	return data.Bytes()
}

func makeTar(t *testing.T, members ...member) []byte {
	t.Helper()
	var data bytes.Buffer
	packed := gzip.NewWriter(&data)
	writer := tar.NewWriter(packed)
	for _, m := range members {
		require.NoError(t, writer.WriteHeader(&tar.Header{Name: m.name, Mode: 0o644, Size: int64(len(m.content)), Typeflag: tar.TypeReg}))
		_, err := writer.Write([]byte(m.content))
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
	require.NoError(t, packed.Close())
	return data.Bytes()
}

func write(t *testing.T, content string, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

// onlyPrograms sets PATH to a folder that holds just the given shell scripts.
func onlyPrograms(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755))
	}
	t.Setenv("PATH", dir)
}

func TestCommandLine(t *testing.T) {
	var log bytes.Buffer
	require.Equal(t, 2, run(t.Context(), nil, &log))
	require.Contains(t, log.String(), "demo")

	log.Reset()
	require.Equal(t, 2, run(t.Context(), []string{"tset"}, &log))
	require.Contains(t, log.String(), `no subcommand "tset"`)

	log.Reset()
	require.Equal(t, 0, run(t.Context(), []string{"--help"}, &log))

	log.Reset()
	require.Equal(t, 2, run(t.Context(), []string{"test", "--lang"}, &log))
	require.Contains(t, log.String(), "-long")

	log.Reset()
	require.Equal(t, 2, run(t.Context(), []string{"demo", "please"}, &log))
	require.Contains(t, log.String(), `"please"`)

	log.Reset()
	t.Chdir(t.TempDir())
	require.Equal(t, 1, run(t.Context(), []string{"demo"}, &log))
	require.Contains(t, log.String(), "not inside a checkout")
}

func TestProgramExitCodeIsPassedOn(t *testing.T) {
	var log bytes.Buffer
	err := asProgramError(process(t.Context(), t.TempDir(), "/bin/sh", "-c", "exit 3").Run())
	require.Equal(t, 3, exitCode(t.Context(), err, &log))
	require.Empty(t, log.String())
}

func TestPrepareRemovesLeftovers(t *testing.T) {
	p, _ := newProject(t)
	leftover := write(t, "half", p.temporary(), "123", "half.whl")
	release, err := p.prepare(t.Context())
	require.NoError(t, err)
	require.NoFileExists(t, leftover)
	release()

	// A folder that cannot be made.
	p.cache = filepath.Join(write(t, "", t.TempDir(), "file"), "cache")
	_, err = p.prepare(t.Context())
	require.ErrorContains(t, err, "set MLXCEL_CACHE")
}

func TestPrepareWaitsForOthers(t *testing.T) {
	p, log := newProject(t)
	release, err := p.prepare(t.Context())
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan struct{})
	go func() {
		<-waiting
		cancel()
	}()
	_, err = lockFolder(ctx, p.cache, func() { close(waiting) })
	require.ErrorIs(t, err, context.Canceled)

	release()
	release, err = p.prepare(t.Context())
	require.NoError(t, err)
	release()
	require.Empty(t, log.String())
}

func TestBuildFolderIsPerCheckout(t *testing.T) {
	p, _ := newProject(t)
	other := *p
	other.root = filepath.Join(t.TempDir(), filepath.Base(p.root))
	require.NotEqual(t, p.buildFolder("release"), other.buildFolder("release"))
	require.NotEqual(t, p.buildFolder("release"), p.buildFolder("sanitize"))
	require.True(t, strings.HasPrefix(p.buildFolder("release"), p.cache))
}
