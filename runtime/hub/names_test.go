package hub

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseReference(t *testing.T) {
	for name, want := range map[string]Reference{
		"mlx-community/Qwen3-0.6B-4bit": {Model: "mlx-community/Qwen3-0.6B-4bit"},
		"Qwen3-0.6B-4bit":               {Model: "mlx-community/Qwen3-0.6B-4bit"},
		"qwen3:0.6b":                    {Model: "mlx-community/Qwen3-0.6B-4bit"},
		"Qwen3:0.6B":                    {Model: "mlx-community/Qwen3-0.6B-4bit"},
		"smollm2":                       {Model: "HuggingFaceTB/SmolLM2-135M-Instruct"},
		"org/name-GGUF:Q4_K_M":          {"org/name-GGUF", "Q4_K_M"},
		"a/b":                           {Model: "a/b"},
	} {
		got, err := ParseReference(name)
		require.NoError(t, err, name)
		require.Equal(t, want, got)
		again, err := ParseReference(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for name, want := range map[string]string{
		"qwen3:0.7b":                   "is no known short name; near it are qwen3:0.6b",
		"quen3:8b":                     "near it are qwen3:8b",
		"completely:other":             `"completely:other" is no known short name`,
		"https://huggingface.co/a/b":   "is an address: write ORG/NAME",
		"":                             "is not the name of a model",
		"a/b/c":                        "is not the name",
		"../x":                         "is not the name",
		"a--b/c":                       "is not the name",
		"a/b..c":                       "is not the name",
		"a/.b":                         "is not the name",
		"-a/b":                         "is not the name",
		"a/b.git":                      "is not the name",
		"a/b c":                        "is not the name",
		`a\b`:                          "is not the name",
		"a/b:":                         "is not the name",
		"a/b:x/y":                      "is not the name",
		"a/" + strings.Repeat("b", 95): "is not the name",
		"models--a--b":                 "is not the name",
	} {
		_, err := ParseReference(name)
		require.ErrorContains(t, err, want, name)
	}
}

func TestAliases(t *testing.T) {
	for alias, model := range aliases {
		require.Regexp(t, regexp.MustCompile(`^[a-z0-9.-]+(:[0-9.]+[bm])?$`), alias)
		require.True(t, validModel(model), model)
		base, _, _ := strings.Cut(alias, ":")
		require.Contains(t, aliases, base, "a name without a size")
	}
}

func TestNearest(t *testing.T) {
	require.Equal(t, []string{"qwen3:0.6b"}, nearest("qwen3:0.6b", []string{"llama", "qwen3:0.6b", "smollm2"}))
	require.Equal(t, []string{"mlx-community/Abc"}, nearest("ABD", []string{"mlx-community/Abc", "other/thing"}))
	require.Empty(t, nearest("abc", []string{"xyz"}))
	require.Empty(t, nearest(strings.Repeat("a", 300), []string{strings.Repeat("a", 300)}))
	require.Len(t, nearest("aaaaaa", []string{"aaaaab", "aaaaac", "aaaaad", "aaaaae"}), maxNearest)
}

func TestCheckPath(t *testing.T) {
	for _, good := range []string{"config.json", "a/b/c.txt", "model-00001-of-00002.safetensors", ".gitattributes", "com10.txt", "Консоль.md", "a b.txt", "..x", "auxiliary.json", "x/.git"} {
		require.NoError(t, checkPath(good), good)
	}
	for _, bad := range []string{
		"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/..", `a\b`, "c:x", "C:/x", "a:b", "a\x00b", "a\nb", "a\x7f", "\xff", "a*", "a?", "a|b", "<a>", `"a"`,
		"nul", "NUL.txt", "con", "con .txt", "a/aux.json", "lpt1", "COM¹", "conin$", "a.", "a ", " a", ".git/config", ".GIT/x", ".cache/x",
		strings.Repeat("a", 256), strings.Repeat("a/", 600) + "a",
	} {
		require.Error(t, checkPath(bad), "%q", bad)
	}
}

func TestCheckRevision(t *testing.T) {
	for _, good := range []string{"main", "v1.0", "refs/pr/12", "feature/x", strings.Repeat("a", 40)} {
		require.NoError(t, checkRevision(good), good)
	}
	for _, bad := range []string{"", "../x", "/x", "x/", "a..b/../c", "-x", "a b", "a?b", "a\\b", "con", strings.Repeat("a", 300)} {
		require.Error(t, checkRevision(bad), bad)
	}
}

func TestSnapshotName(t *testing.T) {
	commit := strings.Repeat("a", 40)
	name, ok := SnapshotName("/x/models--org--a-b/snapshots/" + commit)
	require.True(t, ok)
	require.Equal(t, "org/a-b", name)
	for _, other := range []string{"/x/models--a--b/snapshots/main", "/x/models--a--b/" + commit, "/x/datasets--a--b/snapshots/" + commit, commit, ""} {
		_, ok := SnapshotName(other)
		require.False(t, ok, other)
	}
}
