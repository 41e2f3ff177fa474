package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/host"
	"mlxcel/cmd/internal/models"
	"mlxcel/runtime"
)

const doctorHelp = `
Prints what a report of a problem should hold. The exit code is 1 if the library
cannot be opened.`

type doctorOptions struct {
	libraryOptions
	models.Flags
}

func (a *app) doctor(f *pflag.FlagSet) cli.Run {
	var o doctorOptions
	o.Flags.Define(f)
	o.libraryOptions.define(f)
	return func(_ context.Context, _ []string, s cli.Streams) error {
		if err := o.libraryOptions.check(); err != nil {
			return cli.Usagef("%v", err)
		}
		e := &examination{}
		e.machine()
		err := e.library(a, o.Options)
		e.model(a, &o.Flags)
		if _, err := s.Out.Write(e.text()); err != nil {
			return fmt.Errorf("the answer cannot be written: %w", err)
		}
		return err
	}
}

// examination collects what doctor found out.
type examination struct {
	rows   [][2]string
	advice []string // on what is wrong
}

func (e *examination) row(name, format string, args ...any) {
	e.rows = append(e.rows, [2]string{name, fmt.Sprintf(format, args...)})
}

func (e *examination) wrong(format string, args ...any) {
	e.advice = append(e.advice, fmt.Sprintf(format, args...))
}

// machine looks at what the program runs on.
func (e *examination) machine() {
	h := host.Look()
	e.row("version", "%s", cli.VersionLine("mlxcel"))
	e.row("system", "%s", h.System)
	e.row("cpu", "%s, %s", h.CPU, count(h.Threads, "thread"))
	e.row("", "%s", strings.Join(h.Features, " "))
	e.row("memory", "%s, of which %s available", cli.Bytes(h.Total), cli.Bytes(h.Available))
}

// library opens the library; the error says that it cannot.
func (e *examination) library(a *app, o runtime.Options) error {
	engine, err := a.open(o)
	if err != nil {
		e.row("library", "cannot be opened")
		if open := (*runtime.OpenError)(nil); errors.As(err, &open) {
			e.attempts(open.Attempts)
			e.wrong("%s: %s", open.Problem, remedy(open))
		} else {
			e.wrong("%v", err)
		}
		return errors.New("the library cannot be opened")
	}
	l := engine.Library()
	e.row("library", "%s", l.Path)
	e.row("", "%s", describeLibrary(l))
	if l.Info.BuiltFor != "" {
		e.row("", "built for MLX %s", l.Info.BuiltFor)
	}
	e.attempts(engine.Attempts())
	for _, d := range l.Info.Devices {
		e.row("has", "%s", strings.TrimSpace(fmt.Sprintf("%s %d %s", d.Device, d.Index, d.Name)))
	}
	facts, err := engine.Device()
	if err != nil {
		e.row("device", "cannot be opened")
		e.wrong("the device cannot be opened: %v", err)
	} else {
		e.row("device", "%v%s", facts.Device, deviceMemory(facts))
	}
	return errors.Join(err, engine.Close())
}

// deviceMemory is "" for a device that has no memory of its own.
func deviceMemory(f runtime.DeviceFacts) string {
	if f.TotalMemory == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of memory, of which %s available", cli.Bytes(f.TotalMemory), cli.Bytes(f.FreeMemory))
}

func (e *examination) attempts(tried []runtime.Attempt) {
	name := "tried"
	for _, t := range tried {
		e.row(name, "%s: %s", t.Path, t.Result)
		name = ""
	}
}

// remedy says what to do when a library does not open.
func remedy(e *runtime.OpenError) string {
	for _, known := range []struct{ words, advice string }{
		{"GLIBC_", "the library needs a newer Linux: one whose C library has the version named"},
		{"GLIBCXX_", "the library needs a newer libstdc++: install the system's current libstdc++6"},
		{"libgomp", "install the system's package libgomp1"},
		{"Permission denied", "let your user read the file and the folders above it"},
		{"failed to map segment", "the file system may be mounted noexec: put mlxcel on another one"},
	} {
		if strings.Contains(e.Problem, known.words) {
			return known.advice
		}
	}
	return e.Remedy
}

// model looks at the model that would be used, without loading it.
func (e *examination) model(a *app, m *models.Flags) {
	path, _, _, err := m.Find() // what is not here is not downloaded for this
	if err == nil && path == "" {
		path, err = a.defaultModel()
	}
	if err != nil {
		e.row("model", "none")
		e.wrong("%v", err)
		return
	}
	i, err := a.inspectModel(path)
	if err != nil {
		e.row("model", "%s: cannot be used", path)
		e.wrong("%v", err)
		return
	}
	e.row("model", "%s: %s, %s parameters", path, i.Family, formatCount(i.Parameters))
	need, err := i.MemoryNeed()
	if err != nil {
		e.wrong("%v", err)
		return
	}
	e.row("", "needs %s, and %s for 1024 tokens of context", cli.Bytes(need.Weights), cli.Bytes(need.StatePer1k))
	if available := host.Look().Available; available > 0 && need.Weights+need.StatePer1k > available {
		e.wrong("the model needs more memory than is available: close other programs, or take a smaller model")
	}
}

// text is the whole report.
func (e *examination) text() []byte {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range e.rows {
		fmt.Fprintf(t, "%s\t%s\n", r[0], r[1])
	}
	t.Flush()
	if len(e.advice) == 0 {
		fmt.Fprintln(&b, "\nEverything needed is there.")
		return b.Bytes()
	}
	fmt.Fprintln(&b, "\nWhat to do:")
	for _, advice := range e.advice {
		fmt.Fprintf(&b, "  - %s\n", advice)
	}
	return b.Bytes()
}
