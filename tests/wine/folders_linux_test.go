package wine

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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

// A user who may write nothing but a profile uses a bundle and a model in folders of somebody else.
func TestReadOnly(t *testing.T) {
	wine, dir := testenv.Wine(t).Copy(t), t.TempDir()
	program, model := bundleIn(t, filepath.Join(dir, "bundle")), filepath.Join(dir, testenv.ModelFile)
	link(t, testenv.Model(t), model)
	var user *syscall.Credential
	if os.Getuid() == 0 { // whom no folder is read-only to
		user = &syscall.Credential{Uid: 65534, Gid: 65534}
		drive := filepath.Dir(wine.DriveC())
		require.NoError(t, filepath.WalkDir(drive, func(path string, entry fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := entry.Info()
			require.NoError(t, err)
			if stat := info.Sys().(*syscall.Stat_t); entry.IsDir() || stat.Nlink == 1 { // others are files of the shared drive
				return os.Lchown(path, int(user.Uid), int(user.Gid))
			}
			return nil
		}))
		for parent := filepath.Dir(drive); strings.HasPrefix(parent, os.TempDir()+"/"); parent = filepath.Dir(parent) {
			require.NoError(t, os.Chmod(parent, 0o755))
		}
	}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		if entry.IsDir() {
			t.Cleanup(func() { _ = os.Chmod(path, 0o755) })
			return os.Chmod(path, 0o555)
		}
		return nil
	}))
	for _, args := range [][]string{{"doctor"}, {"generate", "-n", "2", "-p", question}} {
		cmd := wine.Command(program, append(args, "-m", wine.Path(model))...)
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: user}
		cmd.Env = append(cmd.Env, "USER=nobody", "HOME="+wine.DriveC())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	require.Error(t, func() error {
		touch := exec.Command("touch", filepath.Join(dir, "new"))
		touch.SysProcAttr = &syscall.SysProcAttr{Credential: user}
		return touch.Run()
	}(), "the folder is not read-only")
}

// Weights that lie behind the first 2 GiB, and 4 GiB, of a file are read from where they are.
func TestLargeFile(t *testing.T) {
	if !long() {
		t.Skip("it takes long: MLXCEL_TEST_LONG=1 runs it")
	}
	small := filepath.Join(t.TempDir(), odd)
	require.NoError(t, os.CopyFS(small, os.DirFS(filepath.Join(testenv.Root(), "tests", "goldens", "tiny", "llama-f32"))))
	var vocabulary []string
	for i := range 95 { // the tokens that can be typed
		vocabulary = append(vocabulary, fmt.Sprintf("%q:%d", string(rune(' '+i)), i))
	}
	tokenizer := `{"model":{"type":"BPE","merges":[],"vocab":{` + strings.Join(vocabulary, ",") + `}}}`
	require.NoError(t, os.WriteFile(filepath.Join(small, "tokenizer.json"), []byte(tokenizer), 0o644))
	weights, err := os.ReadFile(filepath.Join(small, "model.safetensors"))
	require.NoError(t, err)
	want := generate(t, mlxcel(t), small)

	for _, gap := range []int64{2 << 30, 4 << 30} {
		large := filepath.Join(t.TempDir(), odd)
		require.NoError(t, os.CopyFS(large, os.DirFS(small)))
		// All tensors move back by what an unused one takes, which is a hole in the file.
		n := binary.LittleEndian.Uint64(weights)
		var header map[string]map[string]any
		require.NoError(t, json.Unmarshal(weights[8:8+n], &header))
		for name, tensor := range header {
			if name != "__metadata__" {
				offsets := tensor["data_offsets"].([]any)
				tensor["data_offsets"] = []int64{int64(offsets[0].(float64)) + gap, int64(offsets[1].(float64)) + gap}
			}
		}
		header["model.layers.0.self_attn.rotary_emb.inv_freq"] = map[string]any{
			"dtype": "F32", "shape": []int64{gap / 4}, "data_offsets": []int64{0, gap},
		}
		text, err := json.Marshal(header)
		require.NoError(t, err)
		f, err := os.Create(filepath.Join(large, "model.safetensors"))
		require.NoError(t, err)
		_, err = f.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...))
		require.NoError(t, err)
		_, err = f.WriteAt(weights[8+n:], int64(8+len(text))+gap)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		for _, backend := range []string{"native", "mlx"} {
			require.Equal(t, want, generate(t, mlxcel(t), large, "--backend", backend), "%s, %d", backend, gap)
		}
	}
}
