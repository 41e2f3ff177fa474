package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
)

const chatHelp = `
Every line is a message; a block between """ and """ is one of several lines. Lines
that begin with / are commands: /help lists them. Ctrl-C during an answer ends the
answer, and at the prompt leaves, as does Ctrl-D.

What the model has read it does not read again: only what is new since the last
answer takes time. /stats and -v tell how much that was.

Lines may also come through a pipe. The answers go to stdout, everything else to
stderr. Typed lines are kept in the file $MLXCEL_HISTORY, by default chat_history in
the folder mlxcel of the user's configuration; an empty name keeps none.`

const chatExample = `
mlxcel chat
mlxcel chat --system "You are a pirate." --temp 0.8`

// chatOptions are the flags of chat.
type chatOptions struct {
	modelOptions
	answerOptions
	system string
}

func (a *app) chat(f *pflag.FlagSet) cli.Run {
	o := &chatOptions{}
	o.modelOptions.define(f)
	f.StringVar(&o.system, "system", "", "`TEXT` of the system message")
	o.answerOptions.define(f)
	o.modelOptions.defineRest(f)
	return func(ctx context.Context, _ []string, s cli.Streams) error {
		if err := cmp.Or(o.modelOptions.check(), o.answerOptions.check()); err != nil {
			return cli.Usagef("%v", err)
		}
		return a.runChat(ctx, o, s)
	}
}

func (a *app) runChat(ctx context.Context, o *chatOptions, s cli.Streams) (err error) {
	session, err := a.load(ctx, &o.modelOptions, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.close()) }()
	if !session.HasChatTemplate() {
		return fmt.Errorf("the model %s has no chat template, so it cannot chat: use mlxcel generate --no-chat-template", session.Name())
	}
	lines := a.lines(s)
	defer lines.close()
	c := &conversation{session: session, options: o, streams: s, lines: lines}
	if lines.interactive() {
		fmt.Fprintf(s.Err, "%s; /help for help, Ctrl-D to leave\n", session.Name())
	}
	return c.run(ctx)
}

// conversation is a chat in progress.
type conversation struct {
	session  *session
	options  *chatOptions
	streams  cli.Streams
	lines    lineReader
	messages []runtime.Message // without the system message
	last     *figures          // of the last answer, nil before
	total    int               // tokens of all answers
}

var errLeave = errors.New("leave the chat")

// run takes turns until the input ends.
func (c *conversation) run(ctx context.Context) error {
	for ctx.Err() == nil {
		text, block, err := c.read()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, errAborted):
			if c.lines.interactive() {
				fmt.Fprintln(c.streams.Err)
			}
			return nil
		case err != nil:
			return fmt.Errorf("the next line cannot be read: %w", err)
		case strings.TrimSpace(text) == "":
			continue
		}
		if name, argument, ok := parseCommand(text); ok && !block {
			err = c.command(name, argument)
		} else {
			err = c.turn(ctx, text)
		}
		switch {
		case errors.Is(err, errLeave):
			return nil
		case err != nil && (!c.lines.interactive() || errors.Is(err, cli.ErrInterrupted)):
			return err // a script ends at the first failure
		case err != nil:
			fmt.Fprintf(c.streams.Err, "%v\n", err)
		}
	}
	return cli.ErrInterrupted
}

const (
	prompt         = "> "
	blockPrompt    = ". "
	blockDelimiter = `"""`
)

// read returns what the user enters next, and whether it was a block. After Ctrl-C in a block, the text is empty.
func (c *conversation) read() (text string, block bool, err error) {
	line, err := c.lines.readLine(prompt)
	if err != nil {
		return "", false, err
	}
	c.lines.remember(line)
	rest, block := strings.CutPrefix(strings.TrimSpace(line), blockDelimiter)
	if !block {
		return line, false, nil
	}
	var lines []string
	for first := true; ; first = false {
		text, ended := cutDelimiter(rest)
		// Beside the delimiters there need not be anything.
		if text != "" || !first && !ended {
			lines = append(lines, text)
		}
		if !ended {
			rest, err = c.lines.readLine(blockPrompt)
		}
		switch {
		case ended || errors.Is(err, io.EOF): // the end of the input ends the block too
			return strings.Join(lines, "\n"), true, nil
		case errors.Is(err, errAborted):
			return "", true, nil
		case err != nil:
			return "", true, err
		}
		c.lines.remember(rest)
	}
}

// cutDelimiter cuts the end of a block off a line.
func cutDelimiter(line string) (text string, ended bool) {
	if text, ended := strings.CutSuffix(strings.TrimRight(line, " \t"), blockDelimiter); ended {
		return text, true
	}
	return line, false
}

// turn sends a message and prints the answer. An answer that Ctrl-C ended stays in the conversation as far as it got; a
// message without an answer does not.
func (c *conversation) turn(ctx context.Context, text string) error {
	messages := append(c.messages, runtime.Message{Role: "user", Content: text})
	var r runtime.Request
	c.options.answerOptions.request(&r)
	if c.options.system != "" {
		r.Messages = []runtime.Message{{Role: "system", Content: c.options.system}}
	}
	r.Messages = append(r.Messages, messages...)

	// A second Ctrl-C ends the process: the terminal must be as it was.
	answering, stop := cli.Interruptible(ctx, c.lines.close)
	out := textOutput(c.streams.Out)
	answer, err := c.session.answer(answering, r, out.write)
	stop()
	if err == nil || answer.text.Len() > 0 {
		if e := out.end(); err == nil && e != nil {
			err = fmt.Errorf("the answer cannot be written: %w", e)
		}
	}
	if answer.summary != nil {
		f := c.session.figures(answer.summary, r)
		c.last = &f
		c.total += f.Tokens
	}
	interrupted := errors.Is(err, cli.ErrInterrupted)
	if err == nil || interrupted && answer.text.Len() > 0 {
		c.messages = append(messages, runtime.Message{Role: "assistant", Content: answer.text.String()})
	}
	if c.options.verbose && answer.summary != nil {
		fmt.Fprintln(c.streams.Err, c.last.line())
	}
	switch {
	case interrupted && ctx.Err() == nil && c.lines.interactive():
		fmt.Fprintln(c.streams.Err, "(stopped)")
		return nil
	case errors.Is(err, runtime.ErrPromptTooLong):
		return fmt.Errorf("%w; /clear begins a new conversation", err)
	}
	return err
}
