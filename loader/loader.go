package loader

import (
	"errors"
	"fmt"
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
	Device  string // "auto" or "", "cpu"
}

// Loaded is an open backend library. It stays open until the process ends.
type Loaded struct {
	Library  *bindings.Library
	Backend  string    // "native", "mlx"
	Variant  string    // the bundle's folder that it is from: "native", "cpu"
	Path     string    // of the backend library
	Attempts []Attempt // what was looked at on the way
}

// process is what this process has loaded, by backend.
var process struct {
	sync.Mutex
	loaded map[string]*Loaded
	dirs   map[string]string // of the variant, set before its first library is loaded
}

// Open finds the bundle and opens a backend library in it. The package comment
// says where it looks and what it does to the process. Where the options leave a
// choice, the first library that can be opened is taken: native, then mlx. An
// error that comes from the bundle is an *OpenError.
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
		dir, err := s.find(v, o.Bundle)
		if err != nil {
			return nil, err
		}
		if dir == "" {
			continue
		}
		loaded, err := s.openVariant(v, dir)
		if err == nil {
			return loaded, nil
		}
		if failure == nil {
			failure = err
		}
	}
	if failure == nil {
		failure = s.notFound()
	}
	return nil, failure
}

// openVariant opens the library of a variant, or returns it where it is open.
func (s *search) openVariant(v variant, dir string) (*Loaded, error) {
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
	library, err := s.open(v, dir)
	if err != nil {
		return nil, err
	}
	loaded := &Loaded{library, v.backend, v.name, filepath.Join(dir, v.library), s.attempts}
	process.loaded[v.backend] = loaded
	return loaded, nil
}

// open loads what the library of a variant needs, and the library, after checking
// what can be checked before.
func (s *search) open(v variant, dir string) (*bindings.Library, error) {
	path := filepath.Join(dir, v.library)
	if v.needsMLX() {
		if err := s.checkImage(filepath.Join(dir, mlxFile)); err != nil {
			return nil, err
		}
	}
	if err := s.checkImages(dir); err != nil {
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
		if err := s.openMLX(filepath.Join(dir, mlxFile), path, want); err != nil {
			return nil, err
		}
	}
	handle, err := openPrivate(path)
	if err != nil {
		return nil, s.fail(path, err, "the library %s cannot be opened: %v", path, err)
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
func (s *search) openMLX(path, shim, want string) error {
	if err := setEnvironment(); err != nil {
		return err
	}
	mlx, err := openShared(path)
	if err != nil {
		return s.fail(path, err, "the library %s cannot be opened: %v", path, err)
	}
	have, err := mlxVersion(mlx)
	if err != nil {
		return s.fail(path, err, "%s is not an MLX that mlxcel knows: %v", path, err)
	}
	if have != want {
		return s.fail(path, bindings.ErrVersion, "%s was built for MLX %s, but %s is MLX %s", shim, want, path, have)
	}
	s.note(path, "MLX %s", have)
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
