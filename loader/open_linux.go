package loader

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// Where the libraries lie in the folder of a variant. Their run paths are
// relative to themselves, so nothing has to be told where the others are.
const (
	nativeFile = "libmlxnative.so"
	shimFile   = "libmlxshim.so"
	mlxFile    = "mlx/lib/libmlx.so"
)

const mlxVersionSymbol = "_ZN3mlx4core7versionEv"

func isLibrary(name string) bool {
	return strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")
}

// gpuFiles are what the libraries for GPUs open by name, or only when they need it, by variant and from its folder.
var gpuFiles = map[string][]string{
	"cuda13": {
		"nvidia/cu13/lib/libnvrtc.so.13",
		"nvidia/cu13/lib/libnvrtc-builtins.so.*",
		"nvidia/cu13/lib/libcublasLt.so.13",
		"nvidia/cu13/include/cuda_fp16.h",
		"mlx/include/cccl",
	},
}

// emptyFolder is a folder that MLX wants, from the variant's folder.
const emptyFolder = ""

// checkShared has nothing to check: the folder of a variant holds all that it needs.
func (s *search) checkShared(variant, string) error { return nil }

// asciiPath returns another name for a folder that kernels can be compiled in; here all can.
func asciiPath(dir string) (string, error) { return dir, nil }

// prepareProcess has nothing to do: the run paths of the libraries suffice.
func prepareProcess(string) error { return nil }

// openDriver loads the NVIDIA driver, from where the system has it.
func openDriver() (uintptr, error) {
	library, err := dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return 0, problem{DriverMissing, fmt.Errorf("there is no NVIDIA driver on this system (%w)", err)}
	}
	return library, nil
}

// checkDriverFor has nothing to check: the driver is one file here.
func checkDriverFor(variant) error { return nil }

// setenv sets a variable for Go and for C: with purego, Go's runtime passes it on
// to the C library's setenv.
func setenv(name, value string) error { return os.Setenv(name, value) }

// openShared opens the library at path, resolving everything now, so that what is
// missing is an error here and not a crash later.
func openShared(path string) (uintptr, error) {
	return dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

// openPrivate is openShared, except that no other library is bound to its symbols.
func openPrivate(path string) (uintptr, error) {
	return dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// dlopen stays on one thread: each has words of its own for what failed last, and purego asks for them in a second call.
func dlopen(path string, mode int) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(path, mode)
}

func symbol(library uintptr, name string) (uintptr, error) {
	runtime.LockOSThread() // as in dlopen
	defer runtime.UnlockOSThread()
	return purego.Dlsym(library, name)
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// imageSize returns how long the ELF file must be at least, by its headers.
func imageSize(r io.ReaderAt) (int64, error) {
	var h elf.Header64
	const headerSize = 64
	if err := binary.Read(io.NewSectionReader(r, 0, headerSize), binary.LittleEndian, &h); err != nil ||
		string(h.Ident[:4]) != elf.ELFMAG ||
		elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 ||
		elf.Type(h.Type) != elf.ET_DYN ||
		int(h.Phentsize) != binary.Size(elf.Prog64{}) ||
		elf.Machine(h.Machine) != machines[runtime.GOARCH] {
		return 0, errNoLibrary
	}
	need := max(int64(h.Phoff)+int64(h.Phnum)*int64(h.Phentsize), int64(h.Shoff)+int64(h.Shnum)*int64(h.Shentsize))
	segments := io.NewSectionReader(r, int64(h.Phoff), int64(h.Phnum)*int64(h.Phentsize))
	for range h.Phnum {
		var p elf.Prog64
		if err := binary.Read(segments, binary.LittleEndian, &p); err != nil {
			return need, nil // cut short within the table, which need includes
		}
		need = max(need, int64(p.Off+p.Filesz))
	}
	return need, nil
}
