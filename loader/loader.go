package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"mlxcel/bindings"
)

// Options say what to open.
type Options struct {
	Bundle  string // the bundle's folder; "": see the package comment
	Backend string // "auto" or "", "native", "mlx"
	Device  string // "auto" or "", "cpu", "cuda", "cuda:N" for one of several GPUs, or a GPU's UUID ("GPU-…")
}

// Loaded is an open backend library. It stays open until the process ends.
type Loaded struct {
	Library  *bindings.Library
	Backend  string    // "native", "mlx"
	Variant  string    // the bundle's folder that it is from: "native", "cpu", "cuda13"
	Path     string    // of the backend library
	Attempts []Attempt // what was looked at on the way

	Device bindings.Device // what to open with it
	GPU    GPU             // which one, with DeviceCUDA
	// NoGPU says why the CPU is used although the bundle has libraries for GPUs, a sentence without its end; else "".
	NoGPU string
	// Skipped are the variants that would have been taken first and are there, but cannot be used.
	Skipped []*OpenError
	// JITCache is the folder of the kernels that are compiled for the GPU on this machine.
	JITCache string
}

// process is what this process has loaded, by backend.
var process struct {
	sync.Mutex
	loaded map[string]*Loaded
	dirs   map[string]string // of the variant, set before its first library is loaded
}

// Open finds the bundle and opens a backend library in it. The package comment
// says where it looks and what it does to the process. Where the options leave a
// choice, the first library that can be opened is taken: mlx for a GPU, native,
// mlx for the CPU. An error that comes from the bundle is an *OpenError.
func Open(o Options) (*Loaded, error) {
	process.Lock()
	defer process.Unlock()

	fit, err := suitable(o)
	if err != nil {
		return nil, err
	}
	s := &search{}
	var failure error
	for _, v := range fit {
		before := len(s.attempts)
		dir, err := s.find(v, o.Bundle)
		if err != nil {
			return nil, err
		}
		if dir == "" {
			if v.device == "cuda" && (o.Device == "" || o.Device == "auto") {
				s.attempts = s.attempts[:before] // most bundles are without, and nobody asked for it
			}
			continue
		}
		loaded, err := s.openFor(v, dir, o.Device)
		if err == nil {
			return loaded, nil
		}
		if failure == nil {
			failure = err
		}
		if open := (*OpenError)(nil); errors.As(err, &open) {
			s.skipped = append(s.skipped, open)
			if v.device == "cuda" && s.noGPU == "" {
				s.noGPU = open.Problem
			}
		}
	}
	if failure == nil {
		failure = s.notFound()
	}
	return nil, failure
}

// openFor opens the library of a variant for the device that the option names.
func (s *search) openFor(v variant, dir, device string) (*Loaded, error) {
	if v.device != "cuda" {
		loaded, err := s.openVariant(v, dir, GPU{})
		if err != nil {
			return nil, err
		}
		again := *loaded
		again.NoGPU, again.Skipped = s.noGPU, s.skipped
		return &again, nil
	}
	if s.driver == nil {
		driver := Probe()
		s.driver = &driver
	}
	gpu, err := s.driver.pick(v, device)
	if err == nil {
		err = checkDriverFor(v)
	}
	if err != nil {
		s.note(dir, "%v", err)
		return nil, &OpenError{
			Code: codeOr(err, DriverBroken), Problem: err.Error(), Remedy: "--device cpu computes without a GPU", Attempts: s.attempts,
		}
	}
	if dir, err = asciiPath(dir); err != nil {
		return nil, s.fail(dir, problem{FolderName, err},
			"kernels for the GPU cannot be compiled in %s, as its name is not plain ASCII and %v", dir, err)
	}
	loaded, err := s.openVariant(v, dir, gpu)
	if err != nil {
		return nil, err
	}
	again := *loaded
	again.GPU = gpu
	return &again, nil
}

// openVariant opens the library of a variant, or returns it where it is open. The
// GPU is the first one that it is opened for.
func (s *search) openVariant(v variant, dir string, gpu GPU) (*Loaded, error) {
	if open, ok := process.dirs[v.backend]; ok && open != dir {
		// Its libraries would be bound to those already loaded, by their names.
		return nil, fmt.Errorf("this process has loaded libraries of %s, so it cannot open %s: start another one", open, dir)
	}
	if loaded := process.loaded[v.backend]; loaded != nil {
		return loaded, nil
	}
	if process.loaded == nil {
		process.loaded, process.dirs = map[string]*Loaded{}, map[string]string{}
	}
	loaded := &Loaded{Backend: v.backend, Variant: v.name, Path: filepath.Join(dir, v.library), Device: bindings.DeviceCPU}
	if v.device == "cuda" {
		loaded.Device = bindings.DeviceCUDA
		if err := s.checkGPUFiles(v, dir); err != nil {
			return nil, err
		}
		var err error
		if loaded.JITCache, err = s.jitCache(loaded.Path, gpu); err != nil {
			return nil, err
		}
	}
	var err error
	if loaded.Library, err = s.open(v, dir, loaded.JITCache); err != nil {
		return nil, err
	}
	loaded.Attempts = s.attempts
	process.loaded[v.backend] = loaded
	return loaded, nil
}

// open loads what the library of a variant needs, and the library, after checking
// what can be checked before.
func (s *search) open(v variant, dir, jitCache string) (*bindings.Library, error) {
	path := filepath.Join(dir, v.library)
	if v.needsMLX() {
		if err := s.checkImage(filepath.Join(dir, mlxFile)); err != nil {
			return nil, err
		}
	}
	if err := s.checkImages(dir); err != nil {
		return nil, err
	}
	if err := s.checkShared(v, dir); err != nil {
		return nil, err
	}
	want := ""
	if v.needsMLX() {
		var err error
		if want, err = s.builtFor(path); err != nil {
			return nil, err
		}
	}
	process.dirs[v.backend] = dir
	if err := prepareProcess(dir); err != nil {
		return nil, s.fail(dir, err, "the bundle %s cannot be added to where libraries are searched: %v", dir, err)
	}
	if v.needsMLX() {
		if err := s.openMLX(v, filepath.Join(dir, mlxFile), path, want, jitCache); err != nil {
			return nil, err
		}
	}
	handle, err := openPrivate(path)
	if err != nil {
		return nil, s.fail(path, refused(err), "the library %s cannot be opened: %v", path, err)
	}
	library, err := bindings.New(func(name string) (uintptr, error) { return symbol(handle, name) })
	if err != nil {
		return nil, s.fail(path, err, "%s does not fit this program: %v", path, err)
	}
	info := library.Info()
	s.note(path, "backend %s %s", info.Backend, info.Version)
	return library, nil
}

// openMLX loads MLX, which must be the version that the shim was built for.
func (s *search) openMLX(v variant, path, shim, want, jitCache string) error {
	if err := setEnvironment(jitCache); err != nil {
		return err
	}
	mlx, err := openShared(path)
	if err != nil {
		delete(process.dirs, v.backend) // nothing was loaded
		return s.fail(path, refused(err), "the library %s cannot be opened: %v", path, err)
	}
	have, err := mlxVersion(mlx)
	if err != nil {
		return s.fail(path, problem{WrongVersion, err}, "%s is not an MLX that mlxcel knows: %v", path, err)
	}
	if have != want {
		return s.fail(path, bindings.ErrVersion, "%s was built for MLX %s, but %s is MLX %s", shim, want, path, have)
	}
	s.note(path, "MLX %s", have)
	return nil
}

// checkGPUFiles checks that what is only opened when it is needed is there. An empty folder that MLX wants is made, as
// programs that unzip like to leave it out.
func (s *search) checkGPUFiles(v variant, dir string) error {
	if emptyFolder != "" {
		path := filepath.Join(dir, emptyFolder)
		switch _, err := os.Stat(path); {
		case err == nil:
		case os.MkdirAll(path, 0o755) == nil:
			s.note(path, "made again: MLX wants this empty folder")
		default:
			return s.fail(path, fs.ErrNotExist, "the empty folder %s is missing and cannot be made, and MLX ends without it", path)
		}
	}
	for _, name := range gpuFiles[v.name] {
		path := filepath.Join(dir, name)
		found, err := filepath.Glob(path)
		if err != nil || len(found) == 0 {
			return s.fail(path, fs.ErrNotExist, "the bundle lacks %s, which computing on a GPU needs", path)
		}
		for _, file := range found {
			if !isLibrary(filepath.Base(file)) {
				continue
			}
			if err := s.checkImage(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// mlxVersion asks an open MLX for its version, by mlx::core::version().
func mlxVersion(mlx uintptr) (string, error) {
	address, err := symbol(mlx, mlxVersionSymbol)
	if err != nil {
		return "", err
	}
	text, _, _ := purego.SyscallN(address)
	if text == 0 {
		return "", errors.New("it does not tell its version")
	}
	return goString(text), nil
}

// goString copies a C string.
func goString(address uintptr) string {
	// The address is C memory, which no garbage collector moves: reading it by way
	// of &address keeps vet from taking it for a Go pointer that lost its type.
	p := *(**byte)(unsafe.Pointer(&address))
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
