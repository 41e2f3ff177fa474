package models

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime/hub"
	testhub "mlxcel/tests/hub"
)

func parse(t *testing.T, args ...string) *Flags {
	m := &Flags{}
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	m.Define(set)
	require.NoError(t, set.Parse(args))
	return m
}

// useHub makes a Hub with a model that of the environment.
func useHub(t *testing.T) *testhub.Hub {
	h := testhub.Start(t)
	h.Add("mlx-community/tiny-4bit", &testhub.Model{Files: map[string]*testhub.File{
		"config.json": testhub.Text("{}"), "model.safetensors": testhub.LFS(bytes.Repeat([]byte("x"), 5000)),
	}})
	for name, value := range map[string]string{
		"HF_ENDPOINT": h.URL, "HF_HUB_CACHE": t.TempDir(), "HF_TOKEN": testhub.Token, "HF_HUB_OFFLINE": "", "MLXCEL_MODEL": "",
	} {
		t.Setenv(name, value)
	}
	return h
}

// A program that nobody sits at downloads what it lacks with a line, and then needs no network.
func TestLocateLogged(t *testing.T) {
	h := useHub(t)
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	_, err := parse(t, "-m", "tiny-4bit", "--offline").LocateLogged(t.Context(), log)
	require.ErrorIs(t, err, hub.ErrOffline)
	require.Empty(t, out.String())

	path, err := parse(t, "-m", "tiny-4bit").LocateLogged(t.Context(), log)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(path, "model.safetensors"))
	require.Contains(t, out.String(), `level=INFO msg=downloading model=mlx-community/tiny-4bit size="5.0 kB"`)

	out.Reset()
	h.Body()
	t.Setenv("MLXCEL_MODEL", "mlx-community/tiny-4bit")
	again, err := parse(t, "--offline").LocateLogged(t.Context(), log)
	require.NoError(t, err)
	require.Equal(t, path, again)
	require.Empty(t, out.String())
	require.Zero(t, h.Body())

	_, err = parse(t, "-m", "tiny-5bit").LocateLogged(t.Context(), log)
	require.ErrorContains(t, err, "tiny-4bit", "the nearest name")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	_, err = parse(t, "-m", "tiny-4bit").LocateLogged(ctx, log)
	require.ErrorIs(t, err, context.Canceled)
}

// Paths are taken as they are, and nothing stands for the default model.
func TestLocatePath(t *testing.T) {
	t.Setenv("MLXCEL_MODEL", "")
	path, err := parse(t).Locate(t.Context(), cli.Streams{})
	require.NoError(t, err)
	require.Empty(t, path)
	dir := t.TempDir()
	path, err = parse(t, "-m", dir).Locate(t.Context(), cli.Streams{})
	require.NoError(t, err)
	require.Equal(t, dir, path)
	_, err = parse(t, "-m", dir, "--revision", "v1").Locate(t.Context(), cli.Streams{})
	require.EqualError(t, err, "a revision is for models of the Hub, not for a path")
}

// Nobody is asked where nobody sits.
func TestLocate(t *testing.T) {
	useHub(t)
	var errs bytes.Buffer
	path, err := parse(t, "-m", "tiny-4bit").Locate(t.Context(), cli.Streams{In: strings.NewReader("n\n"), Err: &errs})
	require.NoError(t, err)
	require.DirExists(t, path)
	require.True(t, strings.HasPrefix(path, os.Getenv("HF_HUB_CACHE")))
	require.Equal(t, "downloading mlx-community/tiny-4bit, 5.0 kB\n", errs.String())
}
