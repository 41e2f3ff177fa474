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
	Backend string // "auto" or "", "mlx"
	Device  string // "auto" or "", "cpu"
}

// Loaded is an open backend library. It stays open until the process ends.
type Loaded struct {
	Library  *bindings.Library
	Variant  string    // "cpu"
	Path     string    // of the backend library
	Attempts []Attempt // what was looked at on the way
}

// process is what this process has loaded.
var process struct {
	sync.Mutex
	loaded *Loaded
	dir    string // of the variant, set before the first library is loaded
}

// Open finds the bundle and opens a backend library in it. The package comment
// says where it looks and what it does to the process. An error that comes from
// the bundle is an *OpenError.
func Open(o Options) (*Loaded, error) {
	process.Lock()
	defer process.Unlock()

	fit, err := suitable(o)
	if err != nil {
		return nil, err
	}
	s := &search{}
	v, dir, err := s.find(fit, o.Bundle)
	if err != nil {
		return nil, err
	}
	if process.dir != "" && process.dir != dir {
		// Its libraries would be bound to those already loaded, by their names.
		return nil, fmt.Errorf("this process has loaded libraries of %s, so it cannot open %s: start another one", process.dir, dir)
	}
	if process.loaded != nil {
		return process.loaded, nil
	}
	library, err := s.open(dir)
	if err != nil {
		return nil, err
	}
	process.loaded = &Loaded{library, v.name, filepath.Join(dir, shimFile), s.attempts}
	return process.loaded, nil
}

// open loads MLX and the shim of a variant's folder, after checking what can be
// checked before.
func (s *search) open(dir string) (*bindings.Library, error) {
	mlxPath, shimPath := filepath.Join(dir, mlxFile), filepath.Join(dir, shimFile)
	if err := s.checkImages(dir); err != nil {
		return nil, err
	}
	want, err := s.builtFor(shimPath)
	if err != nil {
		return nil, err
	}

	process.dir = dir
	if err := setEnvironment(); err != nil {
		return nil, err
	}
	if err := prepareProcess(dir); err != nil {
		return nil, s.fail(dir, err, "the bundle %s cannot be added to where libraries are searched: %v", dir, err)
	}
	mlx, err := openShared(mlxPath)
	if err != nil {
		return nil, s.fail(mlxPath, err, "the library %s cannot be opened: %v", mlxPath, err)
	}
	have, err := mlxVersion(mlx)
	if err != nil {
		return nil, s.fail(mlxPath, err, "%s is not an MLX that mlxcel knows: %v", mlxPath, err)
	}
	if have != want {
		return nil, s.fail(mlxPath, bindings.ErrVersion, "%s was built for MLX %s, but %s is MLX %s", shimPath, want, mlxPath, have)
	}
	s.note(mlxPath, "MLX %s", have)

	shim, err := openPrivate(shimPath)
	if err != nil {
		return nil, s.fail(shimPath, err, "the library %s cannot be opened: %v", shimPath, err)
	}
	library, err := bindings.New(func(name string) (uintptr, error) { return symbol(shim, name) })
	if err != nil {
		return nil, s.fail(shimPath, err, "%s does not fit this program: %v", shimPath, err)
	}
	info := library.Info()
	s.note(shimPath, "backend %s %s", info.Backend, info.Version)
	return library, nil
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
