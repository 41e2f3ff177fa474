package wine

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/tests/terminal"
	"mlxcel/tests/testenv"
)

func TestChatThroughAConsole(t *testing.T) {
	wine := testenv.Wine(t)
	c := onConsole(t, mlxcel(t), "chat", "-m", wine.Path(testenv.Model(t)))
	c.expect(t, "/help for help")
	c.Press(t, question+" é模"+terminal.Enter)
	c.expect(t, question+" é模")
	c.expect(t, "The capital of France is Paris")
	c.expect(t, "> ")
	c.Press(t, "/stats"+terminal.Enter)
	c.expect(t, "40 prompt tokens") // which says that the letters came whole
	c.expect(t, "> ")

	// Ctrl-C ends the answer, not the program.
	c.Press(t, "Tell me a long story."+terminal.Enter)
	c.expect(t, "long story.\n")
	c.expect(t, " of ")
	c.Press(t, terminal.CtrlC)
	c.expect(t, "(stopped)")
	c.Press(t, "/exit"+terminal.Enter)
	require.Zero(t, c.exitCode(t))
}

func TestCtrlC(t *testing.T) {
	wine := testenv.Wine(t)
	generate := func() *console {
		return onConsole(t, mlxcel(t), "generate", "--ignore-eos", "-p", "Tell me a long story.", "-m", wine.Path(testenv.Model(t)))
	}
	c := generate()
	c.expect(t, "100 %")
	c.expect(t, " the ")
	c.Press(t, terminal.CtrlC)
	c.expect(t, "first token after")
	require.Equal(t, 130, c.exitCode(t))

	// While it loads, with the threads of the library at work.
	c = generate()
	c.expect(t, " %")
	c.Press(t, terminal.CtrlC)
	require.Equal(t, 130, c.exitCode(t))
}

func TestExitCodes(t *testing.T) {
	wine, program := testenv.Wine(t), mlxcel(t)
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"help"}, 0, ""},
		{[]string{"generate", "-p", "x", "-m", `C:\no\such\model.gguf`}, 1, `C:\no\such\model.gguf`},
		{[]string{"generate", "-p", "x", "-m", `no/such/model.gguf`}, 1, `no\such\model.gguf`},
		{[]string{"generate", "--tp-size", "2"}, 2, "single-node"},
		{[]string{"nonsense"}, 2, "unknown command"},
	} {
		_, errs, code := wine.Run(t, program, test.args...)
		require.Equal(t, test.code, code, test.args)
		require.Contains(t, errs, test.says)
	}
}

// Text goes through pipes as UTF-8, in both directions and in arguments, whatever code page the system has.
func TestPipes(t *testing.T) {
	wine, model := testenv.Wine(t), testenv.Model(t)
	const prompt = "Répète « été » et 模型 🙂."
	args := []string{"generate", "--json", "-n", "24", "--temp", "0", "-m"}
	generate := func(input string, more ...string) answer {
		cmd := wine.Command(mlxcel(t), append(append(args, wine.Path(model)), more...)...)
		cmd.Stdin = strings.NewReader(input)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, errs.String())
		var a answer
		require.NoError(t, json.Unmarshal(out, &a), string(out))
		return a
	}
	linux := exec.Command(filepath.Join(testenv.Root(), "bin", "mlxcel"), append(args, model, "-p", prompt)...)
	out, err := linux.Output()
	require.NoError(t, err)
	var want answer
	require.NoError(t, json.Unmarshal(out, &want), string(out))

	require.Equal(t, want, generate("", "-p", prompt), "an argument")
	require.Equal(t, want, generate(prompt), "a pipe")
	require.Equal(t, want, generate(prompt+"\r\n"), "a pipe from a program that ends lines as Windows does")
}
