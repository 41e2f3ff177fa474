package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// unpackMLX makes the folder of the unpacked MLX wheel and returns it.
func (p *project) unpackMLX(ctx context.Context) (string, error) {
	dir := p.mlxFolder()
	return dir, p.unpackWheel(ctx, p.lock.MLX, dir, p.lock.MLX.SHA256, func(scratch, wheel string) error { return unzip(wheel, scratch) })
}

// unpackWheel makes the folder dir by unpack, which takes what it wants from the
// wheel into an empty folder, unless dir has been made from the same: the key
// stands for the wheel and for how it is unpacked.
func (p *project) unpackWheel(ctx context.Context, a artifact, dir, key string, unpack func(scratch, wheel string) error) error {
	source := filepath.Join(dir, ".wheel")
	if have, err := os.ReadFile(source); err == nil && string(have) == key {
		return nil
	}
	wheel, err := p.download(ctx, a)
	if err != nil {
		return err
	}
	p.say("unpacking %s", a)
	scratch, err := p.scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := unpack(scratch, wheel); err != nil {
		return err
	}
	// The folder says from which wheel it comes; it is moved there when whole.
	if err := os.WriteFile(filepath.Join(scratch, ".wheel"), []byte(key), 0o644); err != nil {
		return err
	}
	return place(scratch, dir)
}

// A library is one of those that CMake builds.
type library struct {
	name   string
	source string // folder of its CMakeLists.txt, from the root
	mlx    bool   // needs MLX to be built
}

var (
	shim   = library{"mlxshim", "mlxshim", true}
	native = library{"mlxnative", "mlxshim/native", false}
)

// The modes in which a library is built.
const (
	modeRelease  = "release"
	modeSanitize = "sanitize" // with its C++ tests, under ASan and UBSan
	modeThreads  = "threads"  // the native library and its tests under TSan
	modeWindows  = "windows"  // the release for Windows
)

var modeSettings = map[string]string{
	modeSanitize: "-DMLXSHIM_SANITIZE=ON",
	modeThreads:  "-DMLXSHIM_SANITIZE_THREADS=ON",
}

// buildLibrary builds target of a library in the given mode and returns the
// build folder.
func (p *project) buildLibrary(ctx context.Context, tools buildTools, l library, mode, target string) (string, error) {
	dir := p.buildFolder(l.name + "-" + mode)
	if err := p.configure(ctx, tools, l, mode, dir); err != nil {
		return "", err
	}
	build := []string{"-C", dir, target}
	plan, err := capture(process(ctx, p.root, tools.ninja, append([]string{"-n"}, build...)...))
	if err == nil && strings.Contains(plan, "no work to do") {
		return dir, nil
	}
	p.say("building %s (%s) in %s", l.name, mode, dir)
	return dir, p.quietly(process(ctx, p.root, tools.ninja, build...), "building "+l.name)
}

// configure runs CMake when it has not run with these arguments; later changes
// in CMakeLists.txt are Ninja's business.
func (p *project) configure(ctx context.Context, tools buildTools, l library, mode, dir string) error {
	source := filepath.Join(p.root, filepath.FromSlash(l.source))
	preset, mlx := "linux", p.mlxFolder()
	if mode == modeWindows {
		preset, mlx = "windows-cross", p.windowsMLXFolder()
	}
	if l.mlx {
		preset += "-cpu"
	}
	args := []string{"-S", source, "-B", dir, "--preset", preset, "-DCMAKE_MAKE_PROGRAM=" + tools.ninja}
	if mode == modeWindows {
		args = append(args, "-DMSVC_ROOT="+p.msvcFolder())
	} else {
		args = append(args, "-DCMAKE_CXX_COMPILER="+tools.compiler)
	}
	if l.mlx {
		args = append(args, "-DMLX_ROOT="+filepath.Join(mlx, "mlx"))
	}
	if setting, ok := modeSettings[mode]; ok {
		args = append(args, setting)
	}
	configured := filepath.Join(dir, ".configured")
	arguments := strings.Join(append([]string{tools.cmake}, args...), "\n")
	if have, err := os.ReadFile(configured); err == nil && string(have) == arguments && exists(filepath.Join(dir, "build.ninja")) {
		return nil
	}
	if !exists(filepath.Join(source, "CMakeLists.txt")) {
		return fmt.Errorf("%s/CMakeLists.txt is missing: restore it with `git checkout %s`", l.source, l.source)
	}
	p.say("configuring %s (%s)", l.name, mode)
	// CMake wants a new folder for another compiler or generator.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := p.quietly(process(ctx, source, tools.cmake, args...), "configuring "+l.name); err != nil {
		return err
	}
	return os.WriteFile(configured, []byte(arguments), 0o644)
}

// ctest builds and runs the C++ tests of both libraries under the sanitizers.
func (p *project) ctest(ctx context.Context) error {
	tools, err := p.buildTools(ctx)
	if err != nil {
		return err
	}
	for _, b := range []struct {
		library
		mode string
	}{{shim, modeSanitize}, {native, modeSanitize}, {native, modeThreads}} {
		dir, err := p.buildLibrary(ctx, tools, b.library, b.mode, "all")
		if err != nil {
			return err
		}
		cmd := process(ctx, p.root, tools.ctest, "--test-dir", dir, "--output-on-failure", "--no-tests=error")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("ctest of %s (%s) failed: %w", b.name, b.mode, err)
		}
	}
	return nil
}
