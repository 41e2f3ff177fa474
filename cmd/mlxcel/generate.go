package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/terminal"
	"mlxcel/runtime"
)

const generateHelp = `
The prompt is that of -p, or what comes through a pipe; one line end at the end of
a pipe's text is left out. It becomes a chat of one message, by the model's own
template, unless --no-chat-template takes it as it is.

The answer goes to stdout, with a line end, and everything else to stderr. It is
chosen greedily, so that it is the same every time, unless --temp is given.

Exit codes: 0, 1 for a failure, 2 for a wrong command line, 130 after Ctrl-C,
which ends the answer and still prints its figures.`

const generateExample = `
mlxcel generate -p "What is the capital of France?"
mlxcel generate --temp 0.8 --top-p 0.95 -p "Write a poem." -n 200
git diff | mlxcel generate --system "Write a commit message for this change."
mlxcel generate --no-chat-template -p "Once upon a time" --json`

// maxPrompt bounds a prompt that comes through a pipe, in bytes: far more than any model's context.
const maxPrompt = 64 << 20

// generateOptions are the flags of generate.
type generateOptions struct {
	modelOptions
	answerOptions
	prompt, system string
	raw, json      bool
	prompted       bool // -p was given
}

func (a *app) generate(f *pflag.FlagSet) cli.Run {
	o := &generateOptions{}
	o.modelOptions.define(f)
	f.StringVarP(&o.prompt, "prompt", "p", "", "prompt `TEXT`; - reads it from stdin, as does a pipe without -p")
	f.StringVar(&o.system, "system", "", "`TEXT` of a system message before the prompt")
	f.BoolVar(&o.raw, "no-chat-template", false, "take the prompt as it is; special tokens written out in it count as such")
	o.answerOptions.define(f)
	f.BoolVar(&o.json, "json", false, "print one JSON object instead of the text: text, token ids, finish reason and figures")
	o.modelOptions.defineRest(f)
	return func(ctx context.Context, _ []string, s cli.Streams) error {
		o.prompted = f.Changed("prompt")
		request, err := o.request(s.In)
		if err != nil {
			return err
		}
		return a.runGenerate(ctx, o, request, s)
	}
}

// request checks the flags and makes the request.
func (o *generateOptions) request(stdin io.Reader) (runtime.Request, error) {
	var r runtime.Request
	if err := cmp.Or(o.modelOptions.check(), o.answerOptions.check()); err != nil {
		return r, cli.Usagef("%v", err)
	}
	if o.raw && o.system != "" {
		return r, cli.Usagef("--system needs the chat template: leave --no-chat-template out, or put the text into the prompt")
	}
	prompt := o.prompt
	if !o.prompted || prompt == "-" {
		var err error
		if prompt, err = readPrompt(stdin, o.prompted); err != nil {
			return r, err
		}
	}
	o.answerOptions.request(&r)
	if o.raw {
		r.Prompt = prompt
		return r, nil
	}
	if o.system != "" {
		r.Messages = append(r.Messages, runtime.Message{Role: "system", Content: o.system})
	}
	r.Messages = append(r.Messages, runtime.Message{Role: "user", Content: prompt})
	return r, nil
}

// readPrompt reads the prompt from stdin, which was asked for or else must be no terminal.
func readPrompt(stdin io.Reader, asked bool) (string, error) {
	const none = "no prompt is given: put it behind -p or into a pipe, or use mlxcel chat"
	if !asked && terminal.Is(stdin) {
		return "", cli.Usagef(none)
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxPrompt+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("the prompt cannot be read from stdin: %w", err)
	case len(text) > maxPrompt:
		return "", fmt.Errorf("the prompt on stdin is longer than %s", cli.Bytes(maxPrompt))
	case len(text) == 0:
		return "", cli.Usagef(none)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

func (a *app) runGenerate(ctx context.Context, o *generateOptions, r runtime.Request, s cli.Streams) (err error) {
	session, err := a.load(ctx, &o.modelOptions, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.close()) }()
	if !o.raw && !session.HasChatTemplate() {
		return fmt.Errorf("the model %s has no chat template: use --no-chat-template to give it the prompt as it is", session.Name())
	}
	var prompt []int32
	if o.json {
		if prompt, err = session.PromptTokens(r); err != nil {
			return err
		}
		r.Messages, r.Prompt, r.Tokens = nil, "", prompt
	}
	out := textOutput(s.Out)
	if o.json {
		out = textOutput(io.Discard)
	}

	ctx, stop := cli.Interruptible(ctx, nil)
	answer, failure := session.answer(ctx, r, out.write)
	stop()
	if failure == nil || answer.text.Len() > 0 {
		if err := out.end(); failure == nil && err != nil {
			failure = fmt.Errorf("the answer cannot be written: %w", err)
		}
	}
	if answer.summary == nil || failure != nil && !errors.Is(failure, cli.ErrInterrupted) {
		return failure
	}
	f := session.figures(answer.summary, r)
	if o.json {
		if err := writeJSON(s.Out, jsonAnswer(session.Name(), prompt, answer, f)); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(s.Err, f.line())
	}
	if o.verbose {
		fmt.Fprint(s.Err, f.details())
	}
	return failure
}

// output writes an answer, so that it ends with a line end.
type output struct {
	w    io.Writer
	last byte // that was written, 0 before
}

func textOutput(w io.Writer) *output { return &output{w: w} }

func (o *output) write(text string) error {
	if text == "" {
		return nil
	}
	o.last = text[len(text)-1]
	_, err := io.WriteString(o.w, text)
	return err
}

// end ends the line, also that of an answer without text.
func (o *output) end() error {
	if o.last == '\n' {
		return nil
	}
	return o.write("\n")
}

// The object that generate --json prints. Times are in seconds, memory in bytes.
type (
	jsonObject struct {
		Model        string      `json:"model"`
		Text         string      `json:"text"`
		PromptIDs    []int32     `json:"prompt_token_ids"`
		IDs          []int32     `json:"token_ids"` // with the token that ended the answer
		FinishReason string      `json:"finish_reason"`
		Seed         *uint64     `json:"seed,omitempty"` // if something was random
		Timings      jsonTimings `json:"timings"`
		Memory       jsonMemory  `json:"memory"`
	}
	jsonTimings struct {
		Load       float64 `json:"load_s"`
		Wait       float64 `json:"wait_s"`
		Prompt     float64 `json:"prompt_s"`
		FirstToken float64 `json:"time_to_first_token_s"`
		Decode     float64 `json:"decode_s"`
		PromptRate float64 `json:"prompt_tokens_per_s"`
		DecodeRate float64 `json:"decode_tokens_per_s"`
	}
	jsonMemory struct {
		Process int64 `json:"process_peak_bytes"` // 0 if unknown
		Device  int64 `json:"device_peak_bytes"`  // 0 if unknown
	}
)

func jsonAnswer(name string, prompt []int32, a *answer, f figures) jsonObject {
	o := jsonObject{
		Model: name, Text: a.text.String(), PromptIDs: prompt, IDs: a.tokens, FinishReason: string(f.Finish),
		Timings: jsonTimings{
			Load: f.load.Seconds(), Wait: f.Wait.Seconds(), Prompt: f.Prompt.Seconds(), FirstToken: f.firstToken().Seconds(),
			Decode: f.Decode.Seconds(), PromptRate: f.PromptRate(), DecodeRate: f.DecodeRate(),
		},
		Memory: jsonMemory{f.peak, f.device},
	}
	if f.random {
		o.Seed = &f.seed
	}
	return o
}

// writeJSON prints a value on a line of its own.
func writeJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // no browser reads it
	if err := e.Encode(value); err != nil {
		return fmt.Errorf("the answer cannot be written: %w", err)
	}
	return nil
}
