package wine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/testenv"
)

// odd is a folder's name with letters of three alphabets, and spaces.
const odd = "Modèle 模型 with spaces"

// generate runs generate for a few tokens and returns the answer.
func generate(t *testing.T, program, model string, more ...string) answer {
	t.Helper()
	wine := testenv.Wine(t)
	out, errs, code := wine.Run(t, program, append([]string{"generate", "--json", "-n", "2", "--no-chat-template", "-p", "The", "-m", wine.Path(model)}, more...)...)
	require.Zero(t, code, errs)
	var a answer
	require.NoError(t, json.Unmarshal([]byte(out), &a), out)
	require.Len(t, a.Tokens, 2)
	return a
}

// On a real Windows a long path needs more than under Wine, which knows no limit: the manifest's longPathAware.
func TestFolders(t *testing.T) {
	deep := strings.Repeat(strings.Repeat("deep", 25)+"/", 3)
	for name, inside := range map[string]string{"odd": odd, "long": deep, "odd and long": odd + "/" + deep} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), inside)
			program, model := bundleIn(t, filepath.Join(dir, "bundle")), filepath.Join(dir, testenv.ModelFile)
			link(t, testenv.Model(t), model)
			if strings.Contains(inside, deep) {
				require.Greater(t, len(model), 300)
			}
			before := listing(t, dir)
			generate(t, program, model)
			if name == "odd and long" {
				generate(t, program, model, "--backend", "mlx")
			}
			require.Equal(t, before, listing(t, dir), "nothing is written beside the program or the model")
		})
	}
}

func TestTwoProcesses(t *testing.T) {
	answers := make([]answer, 2)
	program, model := mlxcel(t), testenv.Model(t)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() { answers[i] = generate(t, program, model) })
	}
	group.Wait()
	require.Equal(t, answers[0], answers[1])
}

// A user whose name is not ASCII has a profile folder with it in its name; downloaded models are found there.
func TestProfileFolder(t *testing.T) {
	const user = "Rübe 模" // Wine makes the profile of the user whom USER names
	wine := testenv.Wine(t)
	profile := filepath.Join(wine.DriveC(), "users", user)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(profile)) })
	snapshot := filepath.Join(profile, ".cache", "huggingface", "hub", "models--org--Tiny-GGUF", "snapshots", strings.Repeat("0", 40))
	link(t, testenv.Model(t), filepath.Join(snapshot, "tiny.gguf"))
	require.NoError(t, os.MkdirAll(filepath.Join(snapshot, "..", "..", "refs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(snapshot, "..", "..", "refs", "main"), []byte(strings.Repeat("0", 40)), 0o644))
	run := func(args ...string) string {
		cmd := wine.Command(mlxcel(t), args...)
		cmd.Env = append(cmd.Env, "USER="+user, "HF_HOME=", "HF_HUB_CACHE=", "XDG_CACHE_HOME=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	require.Contains(t, run("list"), "org/Tiny-GGUF")
	require.Contains(t, run("generate", "--offline", "-n", "8", "-p", question, "-m", "org/Tiny-GGUF"), "The capital of France is Paris")
}
