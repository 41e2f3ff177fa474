package loader

import (
	"debug/pe"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"mlxcel/internal/held"

	"golang.org/x/sys/windows"
)

// Where the libraries lie in the folder of a variant. What they share with other
// variants, as the C++ runtime, is in the folder common beside it.
const (
	nativeFile = "mlxnative.dll"
	shimFile   = "mlxshim.dll"
	mlxFile    = "mlx.dll"
)

const mlxVersionSymbol = "?version@core@mlx@@YAPEBDXZ"

func isLibrary(name string) bool { return strings.EqualFold(filepath.Ext(name), ".dll") }

// gpuFiles are what the libraries for GPUs open by name, or only when they need it, by variant and from its folder.
var gpuFiles = map[string][]string{
	"cuda13": {
		`..\nvidia\cuda_nvrtc\bin\nvrtc64_130_0.dll`,
		`..\nvidia\cuda_nvrtc\bin\nvrtc-builtins64_*.dll`,
		`..\nvidia\cublas\bin\cublasLt64_13.dll`,
		`..\nvidia\cu13\include\cuda_fp16.h`,
		`include\cccl`,
	},
	"cuda12": {
		`..\nvidia\cuda_nvrtc\bin\nvrtc64_120_0.dll`,
		`..\nvidia\cuda_nvrtc\bin\nvrtc-builtins64_*.dll`,
		`..\nvidia\cublas\bin\cublasLt64_12.dll`,
		`..\nvidia\cuda_runtime\include\cuda_fp16.h`,
		`include\cccl`,
	},
}

// emptyFolder is a folder that MLX wants, from the variant's folder: MLX's hook ends the process where the folder of cuDNN
// is missing, even if nothing of it is used.
const emptyFolder = `..\nvidia\cudnn\bin`

// What libraries of several variants are linked to: Microsoft's C++ runtime, which the system may have too, and what MLX
// multiplies with on the CPU.
var (
	runtimeFiles = []string{"msvcp140.dll", "vcruntime140.dll", "vcruntime140_1.dll"}
	mlxFiles     = []string{"libopenblas.dll"}
)

// checkShared checks what lies in the folder common: the system does not say which library it misses.
func (s *search) checkShared(v variant, dir string) error {
	common := filepath.Join(filepath.Dir(dir), "common")
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return err
	}
	names := runtimeFiles
	if v.needsMLX() {
		names = append(slices.Clone(names), mlxFiles...)
	}
	for _, name := range names {
		path := filepath.Join(common, name)
		_, err := os.Stat(path)
		if err == nil {
			if err := s.checkImage(path); err != nil {
				return err
			}
			continue
		}
		inSystem := func() bool { _, err := os.Stat(filepath.Join(system, name)); return err == nil }
		if slices.Contains(runtimeFiles, name) && inSystem() {
			continue
		}
		return s.fail(path, err, "the library %s is missing", path)
	}
	return nil
}

// asciiPath returns another name for a folder that kernels can be compiled in: the compiler takes names in the code page
// of the system, which has few letters beyond ASCII.
func asciiPath(dir string) (string, error) {
	isASCII := func(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r > '~' }) }
	if isASCII(dir) {
		return dir, nil
	}
	long, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return dir, err
	}
	short := make([]uint16, windows.MAX_LONG_PATH)
	n, err := windows.GetShortPathName(long, &short[0], uint32(len(short)))
	if err != nil {
		return dir, err
	}
	if name := windows.UTF16ToString(short[:n]); isASCII(name) {
		return name, nil
	}
	return dir, errors.New("the disk keeps no short names")
}

// prepareProcess takes the working folder and PATH out of where libraries are
// searched, and the bundle in. Without the first call the second one would not
// count for libraries that load others by name.
func prepareProcess(dir string) error {
	if err := windows.SetDefaultDllDirectories(windows.LOAD_LIBRARY_SEARCH_DEFAULT_DIRS); err != nil {
		return err
	}
	folders := []string{dir, filepath.Join(filepath.Dir(dir), "common")}
	nvidia, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "nvidia", "*", "bin"))
	if err != nil {
		return err
	}
	for _, d := range append(folders, nvidia...) {
		if _, err := os.Stat(d); err != nil {
			continue
		}
		path, err := windows.UTF16PtrFromString(d)
		if err != nil {
			return err
		}
		if _, err := windows.AddDllDirectory(path); err != nil {
			return err
		}
	}
	return nil
}

// openDriver loads the NVIDIA driver, from System32 alone.
func openDriver() (uintptr, error) {
	library, err := windows.LoadLibraryEx("nvcuda.dll", 0, windows.LOAD_LIBRARY_SEARCH_SYSTEM32)
	if err != nil {
		return 0, problem{DriverMissing, fmt.Errorf("there is no NVIDIA driver on this system (nvcuda.dll: %w)", err)}
	}
	return uintptr(library), nil
}

// checkDriverFor checks that the driver has the further file without which CUDA 13 finds no GPU, and which drivers for
// CUDA 12 lack.
func checkDriverFor(v variant) error {
	if v.cuda < 13000 {
		return nil
	}
	if _, err := windows.LoadLibraryEx("nvcudart_hybrid64.dll", 0, windows.LOAD_LIBRARY_SEARCH_SYSTEM32); err != nil {
		return problem{DriverPartial, errors.New("the NVIDIA driver lacks nvcudart_hybrid64.dll, without which CUDA 13 finds no GPU: install driver 580 or newer")}
	}
	return nil
}

// setenv sets a variable for Go and for C: the C runtime has its own copy of the
// environment, taken when the process started.
func setenv(name, value string) error {
	if err := os.Setenv(name, value); err != nil {
		return err
	}
	putenv := windows.NewLazySystemDLL("ucrtbase.dll").NewProc("_wputenv_s")
	if err := putenv.Find(); err != nil {
		return err
	}
	n, err := windows.UTF16FromString(name)
	if err != nil {
		return err
	}
	v, err := windows.UTF16FromString(value)
	if err != nil {
		return err
	}
	if code, _, _ := putenv.Call(uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&v[0]))); code != 0 {
		return fmt.Errorf("_wputenv_s answered %d", code)
	}
	return nil
}

// openShared opens the library at path; what it needs is searched in its own
// folder, in the bundle and in System32.
func openShared(path string) (uintptr, error) {
	var library windows.Handle
	err := held.Retry(held.Opening, func() (err error) {
		library, err = windows.LoadLibraryEx(path, 0, windows.LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR|windows.LOAD_LIBRARY_SEARCH_DEFAULT_DIRS)
		return err
	})
	return uintptr(library), err
}

// openPrivate is openShared: on Windows a symbol is looked up in the library that
// it was linked to, so none is ever bound by chance.
func openPrivate(path string) (uintptr, error) { return openShared(path) }

func symbol(library uintptr, name string) (uintptr, error) {
	return windows.GetProcAddress(windows.Handle(library), name)
}

var machines = map[string]uint16{"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64}

// imageSize returns how long the DLL must be at least, by its section table.
func imageSize(r io.ReaderAt) (int64, error) {
	f, err := pe.NewFile(r)
	if err != nil || f.Machine != machines[runtime.GOARCH] {
		return 0, errNoLibrary
	}
	var need int64
	for _, s := range f.Sections {
		need = max(need, int64(s.Offset)+int64(s.Size))
	}
	return need, nil
}
