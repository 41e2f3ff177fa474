package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
)

// contents are the messages of a request, as "role: content".
func contents(r runtime.Request) (all []string) {
	for _, m := range r.Messages {
		all = append(all, m.Role+": "+m.Content)
	}
	return all
}

// script joins lines.
func script(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

func TestChatKeepsTheConversation(t *testing.T) {
	f := &fake{}
	code, out, errors := f.run(script("first", "", "second one"), "chat", "--system", "be kind", "-v")
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, "first\nsecond one\n", out)
	require.Len(t, f.requests, 2)
	require.Equal(t, []string{"system: be kind", "user: first"}, contents(f.requests[0]))
	require.Equal(t, []string{"system: be kind", "user: first", "assistant: first", "user: second one"}, contents(f.requests[1]))
	require.Contains(t, errors, "3 prompt tokens (2 reused), ")
	require.NotContains(t, errors, prompt, "nobody sits there")
	require.Equal(t, 1, f.closed)
}

func TestChatBlocks(t *testing.T) {
	for _, test := range []struct {
		lines []string
		want  []string // the messages
	}{
		{[]string{`"""`, "one", "", "two", `"""`, "next"}, []string{"one\n\ntwo", "next"}},
		{[]string{`"""one`, "two  ", `three"""`}, []string{"one\ntwo  \nthree"}},
		{[]string{`"""all on one line"""`}, []string{"all on one line"}},
		{[]string{`"""`, "", "after an empty line", `""" `}, []string{"\nafter an empty line"}},
		{[]string{`"""`, "/help is no command", `"""`}, []string{"/help is no command"}},
		{[]string{`"""/exit"""`}, []string{"/exit"}},
		{[]string{`"""`, `"""`, "an empty block is nothing"}, []string{"an empty block is nothing"}},
		{[]string{`"""`, "the end of the input", "ends it"}, []string{"the end of the input\nends it"}},
		{[]string{`say """ in the middle`}, []string{`say """ in the middle`}},
		{[]string{"/etc/hosts is no command"}, []string{"/etc/hosts is no command"}},
		{[]string{"with a Windows line end\r"}, []string{"with a Windows line end"}},
	} {
		f := &fake{}
		code, _, errors := f.run(script(test.lines...), "chat")
		require.Equal(t, cli.ExitOK, code, errors)
		var messages []string
		for _, r := range f.requests {
			messages = append(messages, r.Messages[len(r.Messages)-1].Content)
		}
		require.Equal(t, test.want, messages)
	}
}

func TestChatCommands(t *testing.T) {
	f := &fake{}
	code, out, errors := f.run(script(
		"/stats", "/system", "hello", "/system  be brief ", "/system", "again", "/stats", "/clear", "anew",
		"/system -", "/system", "and on", "/exit", "unread"), "chat")
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, "hello\nagain\nanew\nand on\n", out)
	require.Equal(t, []string{"system: be brief", "user: hello", "assistant: hello", "user: again"}, contents(f.requests[1]))
	require.Equal(t, []string{"system: be brief", "user: anew"}, contents(f.requests[2]))
	require.Equal(t, []string{"user: anew", "assistant: anew", "user: and on"}, contents(f.requests[3]))
	for _, part := range []string{
		"there is no answer yet\n", "there is no system message\n", "be brief\n", "prompt   3 tokens, 2 of them reused\n", "chat     4 messages, 2 tokens answered\n",
	} {
		require.Contains(t, errors, part)
	}
}

func TestChatHelpIsComplete(t *testing.T) {
	_, out, errors := (&fake{}).run(script("/help", "/?"), "chat")
	require.Empty(t, out)
	for _, command := range chatCommands() {
		require.Equal(t, 2, strings.Count(errors, "  /"+strings.Join(command.names, ", /")+" "))
	}
}

func TestChatSet(t *testing.T) {
	f := &fake{}
	_, _, errors := f.run(script("/set", "/set temp 0.5", "/set seed 5", "/set top_k 3", "/set max-tokens 2", "one two three", "/set"), "chat")
	r := f.lastRequest(t)
	require.Equal(t, 0.5, r.Sampling.Temperature)
	require.Equal(t, uint64(5), r.Sampling.Seed)
	require.Equal(t, 3, r.Sampling.TopK)
	require.Equal(t, 2, r.MaxTokens)
	require.Regexp(t, `temp +0\n`, errors)
	require.Regexp(t, `seed +another one every time\n`, errors)
	require.Regexp(t, `temp +0\.5\n`, errors)
	require.Regexp(t, `seed +5\n`, errors)
}

func TestChatWrongCommands(t *testing.T) {
	for line, want := range map[string]string{
		"/hlep":         "unknown command /hlep: did you mean /help?",
		"/dance":        "unknown command /dance: /help lists those there are",
		"/clear all":    "/clear takes nothing behind it",
		"/set tmp 1":    `there is nothing called "tmp" to set: did you mean temp?`,
		"/set model x":  `there is nothing called "model" to set`,
		"/set temp":     "a value is missing, as in /set temp 0.7",
		"/set temp hot": `temp cannot be "hot"`,
		"/set temp -1":  "temperature is -1",
		"/set top-p 2":  "top-p is 2",
	} {
		f := &fake{}
		code, out, errors := f.run(script(line, "unread"), "chat", "--temp", "0.7")
		require.Equal(t, cli.ExitFailure, code, "a script ends at the first failure")
		require.Empty(t, out)
		require.Contains(t, errors, "mlxcel: "+want)

		// A person may try again, and a value that was refused has changed nothing.
		typist := &typist{entries: []any{line, "hello"}}
		code, out, errors = typist.run(context.Background(), f, "--temp", "0.7")
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, "hello\n", out)
		require.Contains(t, errors, want)
		require.Equal(t, 0.7, f.lastRequest(t).Sampling.Temperature)
		require.Equal(t, 1., f.lastRequest(t).Sampling.TopP)
	}
}

// typist is a person at the prompt. Entries are lines, or errors such as errAborted for Ctrl-C.
type typist struct {
	entries    []any
	prompts    []string
	remembered []string
	closed     int
}

func (p *typist) readLine(prompt string) (string, error) {
	p.prompts = append(p.prompts, prompt)
	if len(p.entries) == 0 {
		return "", io.EOF
	}
	entry := p.entries[0]
	p.entries = p.entries[1:]
	if err, ok := entry.(error); ok {
		return "", err
	}
	return entry.(string), nil
}

func (p *typist) remember(line string) { p.remembered = append(p.remembered, line) }
func (p *typist) interactive() bool    { return true }
func (p *typist) close()               { p.closed++ }

func (p *typist) run(ctx context.Context, f *fake, args ...string) (code int, stdout, stderr string) {
	a := f.app()
	a.lines = func(cli.Streams) lineReader { return p }
	var out, err bytes.Buffer
	code = a.program().Main(ctx, append([]string{"chat"}, args...), cli.Streams{Out: &out, Err: &err})
	return code, out.String(), err.String()
}

func TestChatWithAPerson(t *testing.T) {
	p := &typist{entries: []any{"hello", `"""`, "dropped", errAborted, `"""`, "a", `b"""`, errAborted, "unread"}}
	code, out, _ := p.run(context.Background(), &fake{})
	require.Equal(t, cli.ExitOK, code, "Ctrl-C at the prompt leaves")
	require.Equal(t, "hello\na\nb\n", out)
	require.Equal(t, []string{"hello", `"""`, "dropped", `"""`, "a", `b"""`}, p.remembered)
	require.Equal(t, []string{"> ", "> ", ". ", ". ", "> ", ". ", ". ", "> "}, p.prompts)
	require.Equal(t, 1, p.closed)
}

func TestChatErrorsDropTheMessage(t *testing.T) {
	f := &fake{answerErr: fmt.Errorf("2050 tokens: %w", runtime.ErrPromptTooLong)}
	p := &typist{entries: []any{"too long", "hello"}}
	code, _, errors := p.run(context.Background(), f)
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, errors, "/clear begins a new conversation\n")
	require.Equal(t, []string{"user: hello"}, contents(f.lastRequest(t)))

	code, _, errors = f.run(script("too long", "unread"), "chat")
	require.Equal(t, cli.ExitFailure, code)
	require.Regexp(t, `^mlxcel: 2050 tokens: .*; /clear begins a new conversation\n$`, errors)
}

func TestChatWhoseContextEnds(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	f := &fake{after: func(int) { end() }}
	code, out, _ := f.runContext(ctx, script("one two", "unread"), "chat")
	require.Equal(t, cli.ExitInterrupted, code)
	require.Equal(t, "one \n", out)
	require.Len(t, f.requests, 1)
}

func TestChatAnswerThatCannotBeWritten(t *testing.T) {
	var stderr bytes.Buffer
	code := (&fake{}).app().program().Main(context.Background(), []string{"chat"},
		cli.Streams{In: strings.NewReader("hello\n"), Out: brokenStream{}, Err: &stderr})
	require.Equal(t, cli.ExitFailure, code)
	require.Equal(t, "mlxcel: the answer cannot be written: no space left on device\n", stderr.String())
}

func TestCompleteCommand(t *testing.T) {
	require.Equal(t, []string{"/system", "/set", "/stats"}, completeCommand("/s"))
	require.Equal(t, []string{"/clear"}, completeCommand("/cl"))
	require.Empty(t, completeCommand("hello"))
	require.Empty(t, completeCommand(""))
}

func TestPlainReaderAtATerminal(t *testing.T) {
	var stderr bytes.Buffer
	in := strings.NewReader("line\nrest")
	r := &plainReader{bufio.NewReader(in), &stderr, true}
	line, err := r.readLine("> ")
	require.NoError(t, err)
	require.Equal(t, "line", line)
	require.Equal(t, "> ", stderr.String())
	line, err = r.readLine("> ")
	require.NoError(t, err)
	require.Equal(t, "rest", line)
	_, err = r.readLine("> ")
	require.True(t, errors.Is(err, io.EOF))
}
