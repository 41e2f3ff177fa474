package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/peterh/liner"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/terminal"
)

// lineReader asks for lines.
type lineReader interface {
	// readLine returns the next line without its end, io.EOF after the last one, or errAborted after Ctrl-C.
	readLine(prompt string) (string, error)
	// remember puts a line into the history.
	remember(line string)
	// interactive reports whether somebody sits there.
	interactive() bool
	// close gives the terminal back as it was.
	close()
}

var errAborted = errors.New("aborted")

// newLineReader returns an editor of lines if a person types them, else a plain reader.
func newLineReader(s cli.Streams) lineReader {
	typed := terminal.Is(s.In)
	if typed && s.In == os.Stdin && s.Out == os.Stdout && terminal.HasSize(s.Out) && liner.TerminalSupported() {
		return newEditor(s.Err)
	}
	return &plainReader{bufio.NewReader(s.In), s.Err, typed}
}

// plainReader reads lines of any stream.
type plainReader struct {
	in    *bufio.Reader
	err   io.Writer // for the prompt
	typed bool
}

func (r *plainReader) readLine(prompt string) (string, error) {
	if r.typed {
		fmt.Fprint(r.err, prompt)
	}
	line, err := r.in.ReadString('\n')
	if err != nil && (err != io.EOF || line == "") {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}

func (r *plainReader) remember(string)   {}
func (r *plainReader) interactive() bool { return r.typed }
func (r *plainReader) close()            {}

// editor edits lines on a terminal, with a history that outlives the program.
type editor struct {
	*liner.State
	history *history
	err     io.Writer
	signals chan os.Signal // that end the program
}

func newEditor(stderr io.Writer) *editor {
	e := &editor{liner.NewLiner(), openHistory(historyPath()), stderr, make(chan os.Signal, 1)}
	signal.Notify(e.signals, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		if sig, ok := <-e.signals; ok {
			e.Close() // or the terminal would be left without echo
			cli.Exit(signalCode(sig))
		}
	}()
	e.SetCtrlCAborts(true)
	e.SetMultiLineMode(true) // wrap long lines
	e.SetBeep(false)
	e.SetCompleter(completeCommand)
	for _, line := range e.history.lines {
		e.AppendHistory(line)
	}
	return e
}

func (e *editor) readLine(prompt string) (string, error) {
	line, err := e.Prompt(prompt)
	if errors.Is(err, liner.ErrPromptAborted) {
		return "", errAborted
	}
	return line, err
}

func (e *editor) remember(line string) {
	e.AppendHistory(line)
	if err := e.history.add(line); err != nil {
		fmt.Fprintf(e.err, "the history is not kept: %v\n", err)
		e.history.path = "" // saying it once is enough
	}
}

func (e *editor) interactive() bool { return true }

func (e *editor) close() {
	signal.Stop(e.signals)
	close(e.signals)
	e.Close()
}

// signalCode is what shells report of a program that a signal has ended.
func signalCode(sig os.Signal) int {
	if n, ok := sig.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return cli.ExitFailure
}
