package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"mlxcel/bindings"
	"mlxcel/loader"
	"mlxcel/runtime/engine"
)

// Options say which library and device to use. The zero value takes the best there is.
type Options struct {
	Bundle  string // folder with the libraries; "": $MLXCEL_BUNDLE, or the folder lib beside the executable
	Backend string // "auto" (also ""), "native", "mlx"; auto is native for models that it knows all ops of
	Device  string // "auto" (also ""), "cpu", "cuda", "cuda:N" for one of several GPUs, or a GPU's UUID
	Threads int    // CPU threads; 0: the library's choice

	// GPUMemory is the share of a GPU's free memory that a model may take, weights, keys and values together; 0: 0.9.
	GPUMemory float64
}

// DefaultGPUMemory is the share of a GPU's free memory that a model may take unless told otherwise.
const DefaultGPUMemory = engine.DefaultGPUMemory

// CheckDevice reports a name that Options.Device cannot have.
func CheckDevice(device string) error { return loader.CheckDevice(device) }

// Errors that callers may want to tell apart with errors.Is. The message of what wraps them says what to do.
var (
	ErrClosed        = engine.ErrClosed
	ErrPromptTooLong = engine.ErrPromptTooLong
	ErrEmptyPrompt   = engine.ErrEmptyPrompt
	ErrQueueFull     = engine.ErrQueueFull
	ErrNoModel       = errors.New("no model is given and there is no default model")
)

// Runtime is an open library.
type Runtime struct {
	options Options
	loaded  *loader.Loaded

	mu     sync.Mutex
	models []*Model
	closed bool
}

// Open opens a library of the bundle. Several may be open at once. The library itself stays loaded until the process
// ends.
func Open(o Options) (*Runtime, error) {
	if o.Threads < 0 {
		return nil, fmt.Errorf("%d threads are not possible", o.Threads)
	}
	if o.GPUMemory < 0 || o.GPUMemory > 1 {
		return nil, fmt.Errorf("a share of %v of the GPU's memory is not possible, want more than 0 and at most 1", o.GPUMemory)
	}
	loaded, err := loader.Open(loader.Options{Bundle: o.Bundle, Backend: o.Backend, Device: o.Device})
	if err != nil {
		return nil, err
	}
	return &Runtime{options: o, loaded: loaded}, nil
}

// Library describes a backend library.
type Library struct {
	Path    string // of the library file
	Variant string // the folder of the bundle that it is from: "native", "cpu", "cuda13"
	Info    bindings.Info

	GPU GPU // the one that models run on; the zero GPU on the CPU
	// NoGPU says why the CPU is used although the bundle has libraries for GPUs, a sentence without its end; else "".
	NoGPU string
	// Skipped are libraries that would have been taken first and are there, but cannot be used.
	Skipped []*OpenError
	// JITCache is the folder of the kernels that are compiled for the GPU on this machine; "" on the CPU.
	JITCache string
}

// Library returns the library that models run on unless they need another one.
func (r *Runtime) Library() Library { return describe(r.loaded) }

func describe(l *loader.Loaded) Library {
	return Library{l.Path, l.Variant, l.Library.Info(), l.GPU, l.NoGPU, l.Skipped, l.JITCache}
}

// contextParams say which device of a library to open.
func (r *Runtime) contextParams(l *loader.Loaded) bindings.ContextParams {
	return bindings.ContextParams{Device: l.Device, Index: l.GPU.Index, Threads: r.options.Threads}
}

// start loads a model on the library that was opened, or on mlx where that lacks an op of it and the choice is free.
func (r *Runtime) start(s *source, o engine.Options) (*engine.Engine, *loader.Loaded, error) {
	o.Context, o.GPUMemory, o.Available = r.contextParams(r.loaded), r.options.GPUMemory, available(r.loaded)
	e, err := engine.Start(r.loaded.Library, s.model, s.checkpoint, o)
	free := r.options.Backend == "" || r.options.Backend == "auto"
	if err == nil || !errors.Is(err, bindings.ErrUnsupported) || !free || r.loaded.Backend == "mlx" {
		return e, r.loaded, err
	}
	mlx, openErr := loader.Open(loader.Options{Bundle: r.options.Bundle, Backend: "mlx", Device: r.options.Device})
	if openErr != nil {
		return nil, nil, fmt.Errorf("%w, and the library on MLX cannot be opened: %w", err, openErr)
	}
	o.Context, o.Available = r.contextParams(mlx), available(mlx)
	e, err = engine.Start(mlx.Library, s.model, s.checkpoint, o)
	return e, mlx, err
}

// Close closes the models that are still open.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	models := slices.Clone(r.models)
	r.mu.Unlock()
	for _, m := range models {
		if err := m.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runtime) add(m *Model) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	r.models = append(r.models, m)
	return nil
}

func (r *Runtime) remove(m *Model) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.models = slices.DeleteFunc(r.models, func(o *Model) bool { return o == m })
}

// DefaultModel returns the path of the model to use where none is named: $MLXCEL_MODEL, or the first model of the
// folder models beside the executable. The error wraps ErrNoModel.
func DefaultModel() (string, error) {
	if path := os.Getenv("MLXCEL_MODEL"); path != "" {
		return path, nil
	}
	executable, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("%w: the executable's own folder is unknown: %w", ErrNoModel, err)
	}
	if target, err := filepath.EvalSymlinks(executable); err == nil { // else as in loader: there are folders that cannot be resolved
		executable = target
	}
	folder := filepath.Join(filepath.Dir(executable), "models")
	entries, err := os.ReadDir(folder) // sorted by name
	if err == nil && len(entries) > 0 {
		return filepath.Join(folder, entries[0].Name()), nil
	}
	return "", fmt.Errorf("%w: name one with -m, or put one into %s", ErrNoModel, folder)
}
