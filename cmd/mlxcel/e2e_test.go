package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/tests/testenv"
)

// These tests run the whole program, with the real library and the default model.

const question = "What is the capital of France?"

// runReal types a command line; the flags for the bundle and the model are added.
func runReal(t *testing.T, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	args = append(args, "--bundle", testenv.Bundle(t), "-m", testenv.Model(t))
	code = Main(context.Background(), args, strings.NewReader(input), &out, &err)
	return code, out.String(), err.String()
}

// answerOf runs generate --json and returns its object.
func answerOf(t *testing.T, args ...string) jsonObject {
	t.Helper()
	code, out, errors := runReal(t, "", append([]string{"generate", "--json"}, args...)...)
	require.Equal(t, cli.ExitOK, code, errors)
	var o jsonObject
	require.NoError(t, json.Unmarshal([]byte(out), &o))
	return o
}

// fullAnswer is the object of the question's whole answer, made once.
func fullAnswer(t *testing.T) jsonObject {
	t.Helper()
	fullOnce.Do(func() { full = answerOf(t, "-p", question) })
	require.NotEmpty(t, full.IDs, "an earlier test has failed to get it")
	return full
}

var (
	fullOnce sync.Once
	full     jsonObject
)

func TestRealAnswer(t *testing.T) {
	code, out, errors := runReal(t, "", "generate", "-p", question)
	require.Equal(t, cli.ExitOK, code, errors)
	require.Contains(t, out, "Paris")
	require.Regexp(t, `^\d+ prompt tokens, .* tok/s \| \d+ tokens, .* tok/s \| first token after .* \| peak memory .*\n$`, errors)

	o := fullAnswer(t)
	require.Equal(t, out, o.Text+"\n", "streamed or not")
	require.Equal(t, "stop", o.FinishReason)
	require.Len(t, o.PromptIDs, 37)
	require.Equal(t, int32(2), o.IDs[len(o.IDs)-1], "<|im_end|>")
	require.Positive(t, o.Timings.Load)
	require.Positive(t, o.Timings.FirstToken)
	require.Positive(t, o.Timings.DecodeRate)
	require.Positive(t, o.Memory.Process)
	require.Positive(t, o.Memory.Device)
	require.Nil(t, o.Seed)
}

func TestRealRawPrompt(t *testing.T) {
	chat := answerOf(t, "-p", question, "--system", "Be brief.", "-n", "2")
	raw := answerOf(t, "--no-chat-template", "-n", "2",
		"-p", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"+question+"<|im_end|>\n<|im_start|>assistant\n")
	require.Equal(t, chat.PromptIDs, raw.PromptIDs, "special tokens that are written out")
	require.Equal(t, chat.IDs, raw.IDs)
}

func TestRealLimits(t *testing.T) {
	full := fullAnswer(t)
	o := answerOf(t, "-p", question, "-n", "3")
	require.Equal(t, full.IDs[:3], o.IDs)
	require.Equal(t, "length", o.FinishReason)

	o = answerOf(t, "-p", question, "--stop", " of Fr")
	before, _, found := strings.Cut(full.Text, " of Fr")
	require.True(t, found, full.Text)
	require.Equal(t, before, o.Text)
	require.Equal(t, "stop", o.FinishReason)

	o = answerOf(t, "-p", question, "--ignore-eos", "--context", "52")
	require.Equal(t, "length", o.FinishReason)
	require.Equal(t, full.IDs, o.IDs[:len(full.IDs)])
	require.Greater(t, len(o.IDs), len(full.IDs))
}

func TestRealSeed(t *testing.T) {
	args := []string{"-p", "Tell me a story.", "-n", "8", "--temp", "1.5"}
	first := answerOf(t, append(args, "--seed", "1")...)
	again := answerOf(t, append(args, "--seed", "1")...)
	other := answerOf(t, append(args, "--seed", "2")...)
	require.Equal(t, first.IDs, again.IDs)
	require.NotEqual(t, first.IDs, other.IDs)
	require.Equal(t, uint64(1), *first.Seed)
}

func TestRealChat(t *testing.T) {
	code, out, errors := runReal(t, script(question, "And of Italy?", "/stats"), "chat", "-n", "12")
	require.Equal(t, cli.ExitOK, code, errors)
	require.Contains(t, out, "Paris")
	// The second prompt begins with all of the first one.
	require.Regexp(t, `prompt   \d+ tokens, (3[7-9]|[4-9]\d) of them reused\n`, errors)
}

func TestRealInspectAndDoctor(t *testing.T) {
	var out, errors bytes.Buffer
	code := Main(context.Background(), []string{"inspect", "-m", testenv.Model(t)}, nil, &out, &errors)
	require.Equal(t, cli.ExitOK, code, errors.String())
	require.Contains(t, out.String(), "134.5 million")

	code, report, _ := runReal(t, "", "doctor")
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, report, "Everything needed is there.")
}

func TestRealFailures(t *testing.T) {
	bundle, model := testenv.Bundle(t), testenv.Model(t)
	damaged := filepath.Join(t.TempDir(), "damaged.gguf")
	require.NoError(t, os.WriteFile(damaged, []byte("GGUF\x03\x00"), 0o644))
	folder := t.TempDir()
	for _, test := range []struct {
		args []string
		want string // a part of the sentence
	}{
		{[]string{"-m", "/no/such/model"}, "/no/such/model"},
		{[]string{"-m", damaged}, damaged},
		{[]string{"-m", folder}, "config.json"},
		{[]string{"-m", model, "--context", "8"}, "8"},
		{[]string{"-m", model, "--bundle", folder}, folder},
	} {
		args := append([]string{"generate", "-p", question, "--bundle", bundle}, test.args...)
		var out, errors bytes.Buffer
		require.Equal(t, cli.ExitFailure, Main(context.Background(), args, nil, &out, &errors), test.args)
		require.Empty(t, out.String())
		require.Regexp(t, `^mlxcel: [^\n]+\n$`, errors.String())
		require.Contains(t, errors.String(), test.want)
	}
}
