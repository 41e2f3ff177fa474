package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// checkSystem says whether MLX's wheel can run here at all.
func (p *project) checkSystem(ctx context.Context) error {
	switch runtime.GOOS + "-" + runtime.GOARCH {
	case linuxTarget:
	case windowsTarget:
		return nil
	default:
		return fmt.Errorf("this is %s on %s, and dist is made for Linux and Windows on x86-64", runtime.GOOS, runtime.GOARCH)
	}
	output, _ := capture(process(ctx, p.root, "getconf", "GNU_LIBC_VERSION"))
	return checkGlibc(output, p.lock.MLX.Platform)
}

// checkGlibc compares what getconf says ("glibc 2.36") with what a wheel's
// platform tag asks for ("manylinux_2_35_x86_64").
func checkGlibc(getconf, platform string) error {
	var wantMajor, wantMinor, major, minor int
	if _, err := fmt.Sscanf(platform, "manylinux_%d_%d_", &wantMajor, &wantMinor); err != nil {
		return fmt.Errorf("%s: the platform %q of mlx is not a manylinux tag", lockFile, platform)
	}
	if _, err := fmt.Sscanf(getconf, "glibc %d.%d", &major, &minor); err != nil {
		return fmt.Errorf("this system does not use glibc, which MLX's wheel needs in version %d.%d or newer: use a distribution such as Debian 12, Ubuntu 22.04 or newer", wantMajor, wantMinor)
	}
	if major < wantMajor || major == wantMajor && minor < wantMinor {
		return fmt.Errorf("this system has glibc %d.%d, and MLX's wheel needs %d.%d or newer: use a newer distribution (Debian 12, Ubuntu 22.04 or newer)", major, minor, wantMajor, wantMinor)
	}
	return nil
}

// cxx20 compiles with any compiler whose language and library are C++20.
const cxx20 = `
#include <concepts>
#include <span>
template <std::integral T> T first(std::span<T> s) { return s[0]; }
int main() { int a[1] = {}; return first(std::span<int>(a)); }
`

// compiler returns a working C++20 compiler: the one named by CXX, or the
// first of the usual names.
func (p *project) compiler(ctx context.Context) (string, error) {
	names := []string{"c++", "g++", "clang++"}
	if name := os.Getenv("CXX"); name != "" {
		names = []string{name}
	}
	found := ""
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		found = path
		cmd := process(ctx, p.cache, path, "-std=c++20", "-fsyntax-only", "-x", "c++", "-")
		cmd.Stdin = strings.NewReader(cxx20)
		if cmd.Run() == nil {
			return path, nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case found != "":
		return "", fmt.Errorf("%s cannot compile C++20: install GCC 11, Clang 14 or newer (Debian, Ubuntu: `apt-get install g++`), or name another compiler in CXX", found)
	case os.Getenv("CXX") != "":
		return "", fmt.Errorf("the compiler %q that CXX names is not on PATH: correct CXX or unset it", os.Getenv("CXX"))
	}
	return "", errors.New("there is no C++ compiler on PATH: install one (Debian, Ubuntu: `apt-get install g++`), or name one in CXX")
}

// buildTools are the programs that build the library.
type buildTools struct{ cmake, ctest, ninja, compiler string }

// buildTools returns the system's CMake and Ninja, or those that pip installs, and
// a compiler. For Windows CMake's presets find theirs.
func (p *project) buildTools(ctx context.Context, target string) (tools buildTools, err error) {
	switch {
	case target == linuxTarget:
		if tools.compiler, err = p.compiler(ctx); err != nil {
			return tools, err
		}
	case runtime.GOOS != "windows":
		if err := checkLLVM(); err != nil {
			return tools, err
		}
	default:
		if _, err := exec.LookPath("cl"); err != nil {
			return tools, errors.New("there is no cl on PATH: install Visual Studio's Build Tools with C++, and run this in their \"x64 Native Tools Command Prompt\"")
		}
	}
	if tools.cmake = p.systemCMake(ctx); tools.cmake == "" {
		bin, err := p.environment(ctx, "cmake", pipSet{pins: p.lock.Python.CMake})
		if err != nil {
			return tools, err
		}
		tools.cmake = filepath.Join(bin, "cmake"+exe())
	}
	tools.ctest = filepath.Join(filepath.Dir(tools.cmake), "ctest")
	if tools.ninja = p.systemNinja(ctx); tools.ninja == "" {
		bin, err := p.environment(ctx, "ninja", pipSet{pins: p.lock.Python.Ninja})
		if err != nil {
			return tools, err
		}
		tools.ninja = filepath.Join(bin, "ninja"+exe())
	}
	return tools, nil
}

// systemCMake returns the path of CMake 3.24 or newer with its ctest, or "".
func (p *project) systemCMake(ctx context.Context) string {
	path, err := exec.LookPath("cmake")
	if err != nil || !exists(filepath.Join(filepath.Dir(path), "ctest"+exe())) {
		return ""
	}
	output, err := capture(process(ctx, p.cache, path, "--version"))
	if err != nil || !atLeast(strings.TrimPrefix(output, "cmake version "), 3, 24) {
		return ""
	}
	return path
}

func (p *project) systemNinja(ctx context.Context) string {
	for _, name := range []string{"ninja", "ninja-build"} { // the second on Fedora
		path, err := exec.LookPath(name)
		if err == nil && process(ctx, p.cache, path, "--version").Run() == nil {
			return path
		}
	}
	return ""
}

// atLeast says whether version, as in "3.25.1", is major.minor or newer.
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	first, err1 := strconv.Atoi(parts[0])
	second, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (first > major || first == major && second >= minor)
}
