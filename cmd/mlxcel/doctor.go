package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
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
cannot be opened. What is wrong has a code in brackets; --codes explains them all.`

type doctorOptions struct {
	libraryOptions
	models.Flags
	codes bool
}

func (a *app) doctor(f *pflag.FlagSet) cli.Run {
	var o doctorOptions
	o.Flags.Define(f)
	o.libraryOptions.define(f)
	f.BoolVar(&o.codes, "codes", false, "print what each code means and what helps, and look at nothing")
	return func(_ context.Context, _ []string, s cli.Streams) error {
		if err := o.libraryOptions.check(); err != nil {
			return cli.Usagef("%v", err)
		}
		if o.codes {
			_, err := io.WriteString(s.Out, explainCodes())
			return err
		}
		e := &examination{}
		e.machine()
		e.driver(a.probeDriver())
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
	advice []string // on what is wrong, each with its code
}

func (e *examination) row(name, format string, args ...any) {
	e.rows = append(e.rows, [2]string{name, fmt.Sprintf(format, args...)})
}

func (e *examination) wrong(code runtime.Code, format string, args ...any) {
	e.advice = append(e.advice, fmt.Sprintf("[%s] ", code)+fmt.Sprintf(format, args...))
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

// driver tells about the NVIDIA driver and its GPUs. That there is none is no fault by itself.
func (e *examination) driver(d runtime.Driver) {
	switch {
	case d.Code == runtime.DriverMissing:
		e.row("nvidia", "no driver")
	case d.Problem != "":
		e.row("nvidia", "%s", d.Problem)
	default:
		e.row("nvidia", "driver for CUDA up to %s", d.CUDAVersion())
	}
	for _, g := range d.GPUs {
		text := fmt.Sprintf("cuda:%d is %s, compute capability %s, %s, %s", g.Index, g.Name, g.Capability(), cli.Bytes(g.Memory), g.UUID)
		if g.Supported() != nil {
			text += ", which the libraries have no code for"
		}
		e.row("", "%s", text)
	}
}

// library opens the library; the error says that it cannot.
func (e *examination) library(a *app, o runtime.Options) error {
	engine, err := a.open(o)
	if err != nil {
		e.row("library", "cannot be opened")
		if open := (*runtime.OpenError)(nil); errors.As(err, &open) {
			e.attempts(open.Attempts)
			e.wrong(open.Code, "%s: %s", open.Problem, remedy(open))
		} else {
			e.wrong(codeLibrary, "%v", err)
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
	for i, d := range l.Info.Devices {
		name := "can use"
		if i > 0 {
			name = ""
		}
		e.row(name, "%s", deviceName(d.Device, d.Index, d.Name))
	}
	facts, err := engine.Device()
	if err != nil {
		e.row("uses", "nothing")
		e.wrong(codeDevice, "the device cannot be opened: %v", err)
	} else {
		name := deviceName(facts.Device.String(), l.GPU.Index, l.GPU.Name)
		if facts.Device == runtime.DeviceCPU {
			name = "the CPU"
		}
		e.row("uses", "%s%s", name, deviceMemory(facts))
	}
	if l.NoGPU != "" {
		e.row("", "and no GPU, since %s", l.NoGPU)
	}
	for _, skipped := range l.Skipped {
		if skipped.Problem == l.NoGPU {
			e.wrong(skipped.Code, "%s: until then everything is computed on the CPU", l.NoGPU)
		} else {
			e.wrong(skipped.Code, "%s: %s", skipped.Problem, remedy(skipped))
		}
	}
	if l.JITCache != "" {
		e.row("kernels", "%s", l.JITCache)
	}
	return errors.Join(err, engine.Close())
}

// deviceName is a device as people say it; the name is that of the GPU, or the instruction set that is used of the CPU.
func deviceName(device string, index int, name string) string {
	switch {
	case device != "cpu":
		return fmt.Sprintf("cuda:%d, %s", index, name)
	case name != "":
		return "the CPU, with " + name
	}
	return "the CPU"
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
		e.wrong(codeNoModel, "%v", err)
		return
	}
	i, err := a.inspectModel(path)
	if err != nil {
		e.row("model", "%s: cannot be used", filepath.FromSlash(path))
		e.wrong(codeModel, "%v", err)
		return
	}
	e.row("model", "%s: %s, %s parameters", filepath.FromSlash(path), i.Family, formatCount(i.Parameters))
	need, err := i.MemoryNeed()
	if err != nil {
		e.wrong(codeModel, "%v", err)
		return
	}
	e.row("", "needs %s, and %s for 1024 tokens of context", cli.Bytes(need.Weights), cli.Bytes(need.StatePer1k))
	if available := host.Look().Available; available > 0 && need.Weights+need.StatePer1k > available {
		e.wrong(codeMemory, "the model needs more memory than is available: close other programs, or take a smaller model")
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
