package hub

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFromEnvironment(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	variables := []string{
		"HF_HOME", "XDG_CACHE_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
		"HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_SYMLINKS", "MLXCEL_EXTRA_CA_CERTS",
	}
	write := func(text string, elements ...string) {
		path := filepath.Join(elements...)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("hf_default\n", home, ".cache", "huggingface", "token")
	write("hf_home", home, "hf", "token")
	write("hf_xdg", home, "xdg", "huggingface", "token")
	write(" hf_path \n", home, "elsewhere")
	for _, test := range []struct {
		set  map[string]string
		want Settings
	}{
		{nil, Settings{Cache: home + "/.cache/huggingface/hub", Token: "hf_default"}},
		{map[string]string{"XDG_CACHE_HOME": home + "/xdg"}, Settings{Cache: home + "/xdg/huggingface/hub", Token: "hf_xdg"}},
		{map[string]string{"XDG_CACHE_HOME": home + "/xdg", "HF_HOME": "~/hf"}, Settings{Cache: home + "/hf/hub", Token: "hf_home"}},
		{map[string]string{"HF_HOME": "$HOME/none"}, Settings{Cache: home + "/none/hub"}},
		{map[string]string{"HUGGINGFACE_HUB_CACHE": home + "/old"}, Settings{Cache: home + "/old", Token: "hf_default"}},
		{map[string]string{"HUGGINGFACE_HUB_CACHE": home + "/old", "HF_HUB_CACHE": home + "/new"}, Settings{Cache: home + "/new", Token: "hf_default"}},
		{map[string]string{"HF_TOKEN_PATH": home + "/elsewhere"}, Settings{Cache: home + "/.cache/huggingface/hub", Token: "hf_path"}},
		{map[string]string{"HF_TOKEN": "hf_1", "HUGGING_FACE_HUB_TOKEN": "hf_2"}, Settings{Cache: home + "/.cache/huggingface/hub", Token: "hf_1"}},
		{map[string]string{"HUGGING_FACE_HUB_TOKEN": "hf_2"}, Settings{Cache: home + "/.cache/huggingface/hub", Token: "hf_2"}},
		{map[string]string{"HF_TOKEN": "hf_1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, Settings{Cache: home + "/.cache/huggingface/hub"}},
		{
			map[string]string{"HF_ENDPOINT": "https://mirror", "HF_HUB_OFFLINE": "true", "HF_HUB_DISABLE_SYMLINKS": "yes", "MLXCEL_EXTRA_CA_CERTS": "~/ca"},
			Settings{Cache: home + "/.cache/huggingface/hub", Token: "hf_default", Endpoint: "https://mirror", Offline: true, NoLinks: true, CAFile: home + "/ca"},
		},
	} {
		for _, name := range variables {
			t.Setenv(name, test.set[name])
		}
		got, err := FromEnvironment()
		require.NoError(t, err)
		got.Cache, got.CAFile = filepath.ToSlash(got.Cache), filepath.ToSlash(got.CAFile)
		test.want.Cache = filepath.ToSlash(test.want.Cache)
		test.want.CAFile = filepath.ToSlash(test.want.CAFile)
		require.Equal(t, test.want, got, "%v", test.set)
	}
}

func TestAddresses(t *testing.T) {
	for endpoint, prefix := range map[string]string{
		"": "https://huggingface.co", "https://mirror/": "https://mirror", "http://127.0.0.1:80/hf": "http://127.0.0.1:80/hf",
	} {
		c, err := newClient(Settings{Endpoint: endpoint, Token: "t"}, 1, 1, 1)
		require.NoError(t, err)
		require.Equal(t, prefix+"/api/models/a/b/revision/refs%2Fpr%2F1?blobs=true", c.listingAddress("a/b", "refs/pr/1").String())
		require.Equal(t, prefix+"/a/b/resolve/c/d%20e/%3Ff%23%25.json", c.fileAddress("a/b", "c", "d e/?f#%.json").String())
	}
}
