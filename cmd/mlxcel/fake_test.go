package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
)

// fake is a runtime without a library, and its only model. A token is a word; its id is its place in the answer.
type fake struct {
	answer     func(r runtime.Request) string // "": echoes the last message
	after      func(token int)                // called when a token was given away
	openErr    error
	loadErr    error
	answerErr  error // comes in place of the end
	noTemplate bool
	noText     bool // has no tokenizer either
	deaf       bool // goes on when its context has ended

	driver  runtime.Driver
	skipped []*runtime.OpenError

	options  runtime.Options
	path     string
	noGPU    string
	jitCache string
	shape    string // of a random model
	bits     int
	settings runtime.ModelOptions
	requests []runtime.Request
	closed   int
}

func (f *fake) app() *app {
	return &app{
		open: func(o runtime.Options) (engine, error) {
			f.options = o
			if f.openErr != nil {
				return nil, f.openErr
			}
			return f, nil
		},
		probeDriver:  func() runtime.Driver { return f.driver },
		inspectModel: runtime.Inspect,
		defaultModel: func() (string, error) { return "", fmt.Errorf("%w: a test", runtime.ErrNoModel) },
		lines:        newLineReader,
	}
}

func (f *fake) Library() runtime.Library {
	return runtime.Library{
		NoGPU: f.noGPU, Skipped: f.skipped, JITCache: f.jitCache, GPU: runtime.GPU{Name: "RTX"},
		Path: "/bundle/lib/cpu/libmlxshim.so", Variant: "cpu",
		Info: runtime.LibraryInfo{Backend: "mlx", Version: "1.2.3", BuiltFor: "0.32.4", Loaded: "0.32.4", Devices: []runtime.DeviceName{
			{Device: "cpu", Name: "avx2"},
		}},
	}
}

func (f *fake) Attempts() []runtime.Attempt {
	return []runtime.Attempt{{Path: "/elsewhere/libmlxshim.so", Result: "no such file"}}
}

func (f *fake) Device() (runtime.DeviceFacts, error) {
	return runtime.DeviceFacts{Device: 1, TotalMemory: 8e9, FreeMemory: 6e9}, nil
}

func (f *fake) LoadModel(path string, o runtime.ModelOptions) (model, error) {
	f.path, f.settings = path, o
	if f.loadErr != nil {
		return nil, f.loadErr
	}
	if o.Progress != nil {
		o.Progress(1<<20, 2<<20)
		o.Progress(2<<20, 2<<20)
	}
	return f, nil
}

func (f *fake) LoadRandom(shape string, bits int, o runtime.ModelOptions) (model, error) {
	f.shape, f.bits = shape, bits
	return f.LoadModel("", o)
}

func (f *fake) Close() error { f.closed++; return nil }

func (f *fake) Name() string          { return "fake-1B" }
func (f *fake) HasTokenizer() bool    { return !f.noText }
func (f *fake) HasChatTemplate() bool { return !f.noTemplate && !f.noText }

func (f *fake) Facts() runtime.Facts {
	return runtime.Facts{MaxTokens: 2048, WeightBytes: 123e6, LoadTime: 250 * time.Millisecond}
}

func (f *fake) Stages(tokens int) (string, error) {
	return fmt.Sprintf("0 everything for %d\n", tokens), nil
}

func (f *fake) Memory() (runtime.Memory, error) { return runtime.Memory{Peak: 150e6}, nil }

func (f *fake) PromptTokens(r runtime.Request) ([]int32, error) {
	switch {
	case len(r.Tokens) > 0:
		return r.Tokens, nil
	case r.Prompt == "" && len(r.Messages) == 0:
		return nil, runtime.ErrEmptyPrompt
	}
	return []int32{7, 8, 9}, nil
}

func (f *fake) Generate(ctx context.Context, r runtime.Request) iter.Seq2[runtime.Piece, error] {
	f.requests = append(f.requests, r)
	return func(yield func(runtime.Piece, error) bool) {
		prompt, err := f.PromptTokens(r)
		if err != nil {
			yield(runtime.Piece{Token: -1}, err)
			return
		}
		text := "echo"
		if n := len(r.Messages); n > 0 {
			text = r.Messages[n-1].Content
		}
		if f.answer != nil {
			text = f.answer(r)
		}
		summary := &runtime.Summary{
			Finish: runtime.FinishStop, PromptTokens: len(prompt), Prompt: 500 * time.Millisecond, Decode: time.Second,
		}
		if len(r.Messages) > 1 {
			summary.CachedTokens = 2
		}
		for i, word := range strings.SplitAfter(text, " ") {
			if ctx.Err() != nil && !f.deaf {
				summary.Finish = runtime.FinishCancelled
				yield(runtime.Piece{Token: -1, Summary: summary}, ctx.Err())
				return
			}
			summary.Tokens++
			if !yield(runtime.Piece{Token: int32(i), Text: word}, nil) {
				return
			}
			if f.after != nil {
				f.after(i)
			}
			if summary.Tokens == r.MaxTokens {
				summary.Finish = runtime.FinishLength
				break
			}
		}
		if f.answerErr != nil {
			summary.Finish = runtime.FinishError
		}
		yield(runtime.Piece{Token: -1, Summary: summary}, f.answerErr)
	}
}

// run types a command line, with input on stdin.
func (f *fake) run(input string, args ...string) (code int, stdout, stderr string) {
	return f.runContext(context.Background(), input, args...)
}

func (f *fake) runContext(ctx context.Context, input string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = f.app().program().Main(ctx, args, cli.Streams{In: strings.NewReader(input), Out: &out, Err: &err})
	return code, out.String(), err.String()
}

// brokenStream is a full disk, and a pipe that breaks.
type brokenStream struct{}

func (brokenStream) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }
func (brokenStream) Read([]byte) (int, error)  { return 0, errors.New("the pipe is broken") }

// lastRequest is what the model was asked last.
func (f *fake) lastRequest(t *testing.T) runtime.Request {
	t.Helper()
	require.NotEmpty(t, f.requests)
	return f.requests[len(f.requests)-1]
}

// programVariable makes the test program, started anew, be mlxcel: "real", or one of a fake.
const programVariable = "MLXCEL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	var f *fake
	switch os.Getenv(programVariable) {
	case "":
		os.Exit(m.Run())
	case "real":
		main()
	case "fake":
		f = &fake{answer: slowWhere("slow")}
	case "deaf":
		f = &fake{answer: slowWhere("slow"), deaf: true}
	}
	if f.answer != nil {
		f.after = func(int) { time.Sleep(20 * time.Millisecond) }
	}
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(f.app().program().Main(context.Background(), os.Args[1:], streams))
}

// slowWhere echoes, but answers a certain message with words that take a minute.
func slowWhere(message string) func(runtime.Request) string {
	return func(r runtime.Request) string {
		last := r.Messages[len(r.Messages)-1].Content
		if last == message {
			return strings.TrimSpace(strings.Repeat("word ", 3000))
		}
		return fmt.Sprintf("answer to %s", last)
	}
}

var (
	_ io.Writer = brokenStream{}
	_ io.Reader = brokenStream{}
)
