package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
)

func TestGenerate(t *testing.T) {
	f := &fake{}
	code, out, errors := f.run("", "generate", "-p", "one two three")
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, "one two three\n", out)
	require.Regexp(t, `^3 prompt tokens, 6\.0 tok/s \| 3 tokens, 2\.0 tok/s \| first token after 0\.50 s \| peak memory .*\n$`, errors)
	require.Equal(t, runtime.Request{
		Messages: []runtime.Message{{Role: "user", Content: "one two three"}},
		Sampling: runtime.Sampling{TopP: 1, RepetitionPenalty: 1, PenaltyWindow: 64},
	}, f.lastRequest(t))
	require.Equal(t, runtime.Options{Backend: "auto", Device: "auto", GPUMemory: 0.9}, f.options)
	require.Equal(t, 1, f.closed)
}

func TestGenerateFlags(t *testing.T) {
	f := &fake{}
	code, _, errors := f.run("", "gen", "-m", "./some/model", "-p", "hi", "-n", "5", "--temp", "0.5", "--top-k", "40", "--top-p", "0.9",
		"--min-p", "0.05", "--seed", "12", "--stop", "a,b", "--stop", "c", "--system", "be kind", "--ignore-eos", "--threads", "3",
		"--repetition-penalty", "1.1", "--presence-penalty", "0.2", "--frequency-penalty", "0.3", "--penalty-window", "16",
		"--context", "512", "--bundle", "/b", "--backend", "mlx", "--device", "cuda:1", "--gpu-memory", "0.5")
	require.Equal(t, cli.ExitOK, code, errors)
	require.Equal(t, runtime.Options{Bundle: "/b", Backend: "mlx", Device: "cuda:1", Threads: 3, GPUMemory: 0.5}, f.options)
	require.Equal(t, "./some/model", f.path)
	require.Equal(t, 512, f.settings.ContextTokens)
	require.Nil(t, f.settings.Progress, "stderr is no terminal")
	require.Equal(t, runtime.Request{
		Messages:  []runtime.Message{{Role: "system", Content: "be kind"}, {Role: "user", Content: "hi"}},
		MaxTokens: 5,
		Stop:      []string{"a,b", "c"},
		IgnoreEOS: true,
		Sampling: runtime.Sampling{
			Temperature: 0.5, TopK: 40, TopP: 0.9, MinP: 0.05, Seed: 12,
			RepetitionPenalty: 1.1, PresencePenalty: 0.2, FrequencyPenalty: 0.3, PenaltyWindow: 16,
		},
	}, f.lastRequest(t))
}

func TestGenerateOtherSpellings(t *testing.T) {
	f := &fake{}
	code, _, errors := f.run("", "generate", "-p", "hi", "--temperature=0.5", "--top_k=3", "--repeat-penalty=1.2", "--n-predict=4", "--ctx-size=9")
	require.Equal(t, cli.ExitOK, code, errors)
	r := f.lastRequest(t)
	require.Equal(t, 0.5, r.Sampling.Temperature)
	require.Equal(t, 3, r.Sampling.TopK)
	require.Equal(t, 1.2, r.Sampling.RepetitionPenalty)
	require.Equal(t, 4, r.MaxTokens)
	require.Equal(t, 9, f.settings.ContextTokens)
}

func TestPromptFromStdin(t *testing.T) {
	for _, test := range []struct {
		args        []string
		input, want string
	}{
		{nil, "from a pipe\n", "from a pipe"},
		{[]string{"-p", "-"}, "two\nlines\n\n", "two\nlines\n"},
		{nil, "Windows\r\n", "Windows"},
		{nil, "no end", "no end"},
		{[]string{"-p", "flag"}, "unread", "flag"},
		{[]string{"-p", ""}, "unread", ""},
	} {
		f := &fake{answer: func(runtime.Request) string { return "ok" }}
		code, out, errors := f.run(test.input, append([]string{"generate"}, test.args...)...)
		require.Equal(t, cli.ExitOK, code, errors)
		require.Equal(t, "ok\n", out)
		require.Equal(t, []runtime.Message{{Role: "user", Content: test.want}}, f.lastRequest(t).Messages)
	}
}

func TestRawPrompt(t *testing.T) {
	f := &fake{noTemplate: true}
	code, out, _ := f.run("", "generate", "--no-chat-template", "-p", "<|im_start|>Once")
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, "echo\n", out)
	require.Equal(t, "<|im_start|>Once", f.lastRequest(t).Prompt)
	require.Empty(t, f.lastRequest(t).Messages)
}

func TestAnswerEndsWithALineEnd(t *testing.T) {
	for answer, want := range map[string]string{"": "\n", "a": "a\n", "a\n": "a\n", "a\n\n": "a\n\n"} {
		f := &fake{answer: func(runtime.Request) string { return answer }}
		_, out, _ := f.run("", "generate", "-p", "hi")
		require.Equal(t, want, out)
	}
}

func TestGenerateJSON(t *testing.T) {
	f := &fake{answer: func(runtime.Request) string { return "an <answer> é" }}
	code, out, errors := f.run("", "generate", "-p", "hi", "--json")
	require.Equal(t, cli.ExitOK, code)
	require.Empty(t, errors)
	require.Equal(t, 1, strings.Count(out, "\n"))
	require.Contains(t, out, "<answer> é", "not escaped")
	require.Equal(t, []int32{7, 8, 9}, f.lastRequest(t).Tokens, "the ids printed are those computed")

	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &object))
	memory := object["memory"].(map[string]any)
	require.Positive(t, memory["process_peak_bytes"])
	delete(memory, "process_peak_bytes")
	require.Equal(t, map[string]any{
		"model": "fake-1B", "text": "an <answer> é", "finish_reason": "stop",
		"prompt_token_ids": []any{7., 8., 9.}, "token_ids": []any{0., 1., 2.},
		"timings": map[string]any{
			"load_s": 0.25, "wait_s": 0., "prompt_s": 0.5, "time_to_first_token_s": 0.5, "decode_s": 1.,
			"prompt_tokens_per_s": 6., "decode_tokens_per_s": 2.,
		},
		"memory": map[string]any{"device_peak_bytes": 150e6},
	}, object)

	_, out, _ = f.run("", "generate", "-p", "hi", "--json", "--temp", "1", "--seed", "0", "-n", "1")
	require.NoError(t, json.Unmarshal([]byte(out), &object))
	require.Equal(t, 0., object["seed"], "a seed that is 0 is a seed too")
	require.Equal(t, "length", object["finish_reason"])
}

func TestSeed(t *testing.T) {
	f := &fake{}
	for range 2 {
		code, _, errors := f.run("", "generate", "-p", "hi", "--temp", "0.8", "-v")
		require.Equal(t, cli.ExitOK, code)
		require.Contains(t, errors, fmt.Sprintf("seed     %d\n", f.lastRequest(t).Sampling.Seed))
	}
	require.NotEqual(t, f.requests[0].Sampling.Seed, f.requests[1].Sampling.Seed)
	_, _, errors := f.run("", "generate", "-p", "hi", "-v")
	require.NotContains(t, errors, "seed")
}

func TestVerbose(t *testing.T) {
	f := &fake{}
	_, out, errors := f.run("", "generate", "-p", "hi", "-v")
	require.Equal(t, "hi\n", out)
	for _, part := range []string{
		"library  /bundle/lib/cpu/libmlxshim.so: backend mlx 1.2.3, variant cpu, MLX 0.32.4\n",
		"model    fake-1B: 123 MB of weights, loaded in 0.25 s, context of 2048 tokens\n",
		"finish   stop\n", "prompt   3 tokens, 0 of them reused\n", "arrays 150 MB at most\n",
	} {
		require.Contains(t, errors, part)
	}
}

func TestWrongCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"generate":                                    "no prompt is given",
		"generate -p -":                               "no prompt is given",
		"generate words":                              `generate has no use for the argument "words"`,
		"generate -p x -n 0":                          "--max-tokens is 0",
		"generate -p x -n -2":                         "--max-tokens is -2",
		"generate -p x -n many":                       `invalid argument "many"`,
		"generate -p x --temp -1":                     "temperature is -1",
		"generate -p x --temp NaN":                    "temperature is NaN",
		"generate -p x --temp hot":                    `invalid argument "hot"`,
		"generate -p x --top-k -1":                    "top-k is -1",
		"generate -p x --top-p 1.5":                   "top-p is 1.5",
		"generate -p x --min-p -0.1":                  "min-p is -0.1",
		"generate -p x --seed -1":                     `invalid argument "-1"`,
		"generate -p x --seed 18446744073709551616":   "invalid argument",
		"generate -p x --repetition-penalty -1":       "repetition penalty is -1",
		"generate -p x --presence-penalty 101":        "presence penalty is 101",
		"generate -p x --frequency-penalty -Inf":      "frequency penalty is -Inf",
		"generate -p x --penalty-window 0":            "--penalty-window is 0",
		"generate -p x --penalty-window 5000":         "penalty window is 5000",
		"generate -p x --stop=":                       "--stop is empty",
		"generate -p x --context -1":                  "--context is -1",
		"generate -p x --threads -1":                  "--threads is -1",
		"generate -p x --backend cuda":                "want auto, native, mlx",
		"generate -p x --device tpu":                  "want auto, cpu",
		"generate -p x --system y --no-chat-template": "--system needs the chat template",
		"generate -p x --josn":                        "unknown flag: --josn: did you mean --json?",
		"generate -p":                                 "flag needs an argument",
		"chat -p x":                                   "unknown shorthand flag: 'p' in -p",
		"chat -n 0":                                   "--max-tokens is 0",
		"chat --threads -1":                           "--threads is -1",
		"chat x":                                      `chat has no use for the argument "x"`,
		"inspect --tokens 5":                          "--tokens is for --program",
		"inspect --program --tokens 0":                "--tokens is 0",
		"inspect x":                                   `inspect has no use for the argument "x"`,
		"doctor --device tpu":                         "want auto, cpu",
		"inspect --device cuda:x":                     "want auto, cpu",
		"generate -p x --gpu-memory 0":                "--gpu-memory is 0, want more than 0 and at most 1",
		"bench --bits 8":                              "--bits is for --random",
		"bench --random 4b -m x":                      "--random takes no model",
		"bench --rounds 0":                            "1 round",
		"genrate -p x":                                `unknown command "genrate": did you mean generate?`,
		"dance":                                       `unknown command "dance"`,
	} {
		t.Run(args, func(t *testing.T) {
			f := &fake{openErr: errors.New("must not be opened")}
			code, out, errors := f.run("", strings.Fields(args)...)
			require.Equal(t, cli.ExitUsage, code, errors)
			require.Empty(t, out)
			require.Regexp(t, `^mlxcel: [^\n]+\nSee 'mlxcel( \w+)? --help'\.\n$`, errors)
			require.Contains(t, errors, want)
		})
	}
}

func TestFailures(t *testing.T) {
	for _, test := range []struct {
		fake *fake
		args string
		out  string
		want string
	}{
		{&fake{openErr: errors.New("no library")}, "generate -p x", "", "no library"},
		{&fake{loadErr: errors.New("no model")}, "generate -p x", "", "no model"},
		{&fake{noTemplate: true}, "generate -p x", "", "the model fake-1B has no chat template: use --no-chat-template to give it the prompt as it is"},
		{&fake{noText: true}, "generate -p x -m a/b/", "", "the model fake-1B has no tokenizer, so it cannot read or write text: put its tokenizer.json into a/b/"},
		{&fake{noText: true}, "chat", "", "the model fake-1B has no tokenizer, so it cannot read or write text: put its tokenizer.json into its folder"},
		{&fake{noTemplate: true}, "chat", "", "the model fake-1B has no chat template, so it cannot chat: use mlxcel generate --no-chat-template"},
		{&fake{}, "generate --no-chat-template --prompt=", "", runtime.ErrEmptyPrompt.Error()},
		{&fake{}, "generate --no-chat-template --prompt= --json", "", runtime.ErrEmptyPrompt.Error()},
		{&fake{answerErr: errors.New("it broke")}, "generate -p x", "x\n", "it broke"},
		{&fake{answerErr: errors.New("it broke")}, "generate -p x --json", "", "it broke"},
	} {
		code, out, errors := test.fake.run("", strings.Fields(test.args)...)
		require.Equal(t, cli.ExitFailure, code, test.args)
		require.Equal(t, test.out, out)
		require.Equal(t, "mlxcel: "+test.want+"\n", errors)
		if test.fake.openErr == nil {
			require.Equal(t, 1, test.fake.closed, "what was opened is closed")
		}
	}
}

func TestStreamsThatBreak(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"generate -p x", "the answer cannot be written: no space left on device"},
		{"generate -p x --json", "the answer cannot be written: no space left on device"},
		{"doctor", "the answer cannot be written: no space left on device"},
		{"generate", "the prompt cannot be read from stdin: the pipe is broken"},
		{"chat", "the next line cannot be read: the pipe is broken"},
	} {
		f := &fake{}
		var errors bytes.Buffer
		code := f.app().program().Main(context.Background(), strings.Fields(test.args), cli.Streams{In: brokenStream{}, Out: brokenStream{}, Err: &errors})
		require.Equal(t, cli.ExitFailure, code, test.args)
		require.Equal(t, "mlxcel: "+test.want+"\n", errors.String())
	}
}

func TestInterruptedAnswer(t *testing.T) {
	for _, args := range [][]string{{"-p", "count"}, {"-p", "count", "--json"}} {
		ctx, interrupt := context.WithCancel(context.Background())
		f := &fake{
			answer: func(runtime.Request) string { return "one two three four" },
			after: func(token int) {
				if token == 1 {
					interrupt()
				}
			},
		}
		code, out, errors := f.runContext(ctx, "", append([]string{"generate"}, args...)...)
		require.Equal(t, cli.ExitInterrupted, code)
		require.Equal(t, 1, f.closed)
		if len(args) == 2 {
			require.Equal(t, "one two \n", out)
			require.Contains(t, errors, "| 2 tokens, ")
			require.NotContains(t, errors, "mlxcel:")
			continue
		}
		require.Empty(t, errors)
		require.Contains(t, out, `"text":"one two ","prompt_token_ids":[7,8,9],"token_ids":[0,1],"finish_reason":"cancelled"`)
	}
}

func TestLongPromptOnStdin(t *testing.T) {
	f := &fake{}
	code, _, errors := f.run(strings.Repeat("x", maxPrompt+1), "generate")
	require.Equal(t, cli.ExitFailure, code)
	require.Equal(t, "mlxcel: the prompt on stdin is longer than 67 MB\n", errors)
}
