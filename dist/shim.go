package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"mlxcel/tests/testenv"
)

// wheel returns what is pinned of a package for a target.
func (p *project) wheel(target, name string) artifact {
	if target == linuxTarget && name == p.lock.MLX.Name {
		return p.lock.MLX
	}
	return p.lock.Wheels[target][name]
}

// unpackWheel makes the folder of an unpacked wheel and returns it.
func (p *project) unpackWheel(ctx context.Context, target, name string) (string, error) {
	dir, wheel := p.wheelFolder(target, name), p.wheel(target, name)
	if wheel.Name == "" {
		return "", fmt.Errorf("%s pins no %s for %s", lockFile, name, target)
	}
	return dir, p.unpack(ctx, wheel, dir, wheel.SHA256, func(scratch, file string) error { return unzip(file, scratch) })
}

// unpack makes the folder dir by do, which takes what it wants from the wheel into
// an empty folder, unless dir has been made from the same: the key stands for the
// wheel and for how it is unpacked.
func (p *project) unpack(ctx context.Context, a artifact, dir, key string, do func(scratch, wheel string) error) error {
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
	if err := do(scratch, wheel); err != nil {
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

// A mode is how a library is built.
type mode struct {
	name    string // for its build folder
	target  string // linuxTarget, windowsTarget
	setting string // for CMake
	cuda    *cuda  // which MLX for GPUs it is built on; nil: MLX for the CPU
	mlxRoot string // an installed MLX in place of the wheel's
}

var (
	modeRelease  = mode{name: releaseName(hostTarget()), target: hostTarget()}
	modeSanitize = mode{name: "sanitize", target: linuxTarget, setting: "-DMLXSHIM_SANITIZE=ON"}        // with its C++ tests, under ASan and UBSan
	modeThreads  = mode{name: "threads", target: linuxTarget, setting: "-DMLXSHIM_SANITIZE_THREADS=ON"} // the native library and its tests under TSan
)

// releaseName names the build folder of what is put into bundles.
func releaseName(target string) string {
	if target == windowsTarget {
		return "windows"
	}
	return "release"
}

// buildLibrary builds target of a library in the given mode and returns the
// build folder.
func (p *project) buildLibrary(ctx context.Context, tools buildTools, l library, m mode, target string) (string, error) {
	dir := p.buildFolder(l.name + "-" + m.name)
	if err := p.configure(ctx, tools, l, m, dir); err != nil {
		return "", err
	}
	build := []string{"-C", dir, target}
	plan, err := capture(process(ctx, p.root, tools.ninja, append([]string{"-n"}, build...)...))
	if err == nil && strings.Contains(plan, "no work to do") {
		return dir, nil
	}
	p.say("building %s (%s) in %s", l.name, m.name, dir)
	return dir, p.quietly(process(ctx, p.root, tools.ninja, build...), "building "+l.name)
}

// configure runs CMake when it has not run with these arguments; later changes
// in CMakeLists.txt are Ninja's business.
func (p *project) configure(ctx context.Context, tools buildTools, l library, m mode, dir string) error {
	source := filepath.Join(p.root, filepath.FromSlash(l.source))
	settings, err := p.settings(ctx, tools, l, m)
	if err != nil {
		return err
	}
	args := append([]string{"-S", source, "-B", dir, "-DCMAKE_MAKE_PROGRAM=" + tools.ninja}, settings...)
	configured := filepath.Join(dir, ".configured")
	arguments := strings.Join(append([]string{tools.cmake}, args...), "\n")
	if have, err := os.ReadFile(configured); err == nil && string(have) == arguments && exists(filepath.Join(dir, "build.ninja")) {
		return nil
	}
	if !exists(filepath.Join(source, "CMakeLists.txt")) {
		return fmt.Errorf("%s/CMakeLists.txt is missing: restore it with `git checkout %s`", l.source, l.source)
	}
	p.say("configuring %s (%s)", l.name, m.name)
	// CMake wants a new folder for another compiler or generator.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	// CMake looks for presets in the folder that it is started in.
	if err := p.quietly(process(ctx, source, tools.cmake, args...), "configuring "+l.name); err != nil {
		return err
	}
	return os.WriteFile(configured, []byte(arguments), 0o644)
}

// settings are CMake's arguments for a library in a mode. What is fixed stands in
// its presets.
func (p *project) settings(ctx context.Context, tools buildTools, l library, m mode) ([]string, error) {
	var args []string
	preset := "linux"
	switch {
	case m.target == windowsTarget && runtime.GOOS == "windows":
		preset = "windows"
	case m.target == windowsTarget:
		preset = "windows-cross"
		msvc, err := p.unpackMSVC(ctx)
		if err != nil {
			return nil, err
		}
		args = append(args, "-DMSVC_ROOT="+msvc)
		if wine, err := testenv.WineProgram(); err == nil {
			args = append(args, "-DCMAKE_CROSSCOMPILING_EMULATOR="+wine) // for ctest
		}
	default:
		args = append(args, "-DCMAKE_CXX_COMPILER="+tools.compiler)
	}
	if m.setting != "" {
		args = append(args, m.setting)
	}
	if l.mlx {
		variant, wheel := "cpu", p.lock.MLX.Name
		if m.cuda != nil {
			variant, wheel = m.cuda.name, m.cuda.wheel
			headers, err := p.cudaHeaders(ctx, m.target, m.cuda)
			if err != nil {
				return nil, err
			}
			args = append(args, "-DCUDA_INCLUDE="+headers)
		}
		preset += "-" + variant
		root := m.mlxRoot
		if root == "" {
			folder, err := p.unpackWheel(ctx, m.target, wheel)
			if err != nil {
				return nil, err
			}
			root = filepath.Join(folder, "mlx")
		}
		args = append(args, "-DMLX_ROOT="+root)
	}
	return append([]string{"--preset", preset}, args...), nil
}

// cudaHeaders returns the folder of CUDA's headers, which are in several packages.
func (p *project) cudaHeaders(ctx context.Context, target string, c *cuda) (string, error) {
	dir := p.wheelFolder(target, c.headers[0]) + "-headers"
	key := ""
	for _, name := range c.headers {
		key += p.wheel(target, name).SHA256 + "\n"
	}
	made := filepath.Join(dir, ".wheels")
	if have, err := os.ReadFile(made); err == nil && string(have) == key {
		return dir, nil
	}
	scratch, err := p.scratch()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	for _, name := range c.headers {
		folder, err := p.unpackWheel(ctx, target, name)
		if err != nil {
			return "", err
		}
		// nvidia/cu13/include, or a folder for each package.
		includes, err := filepath.Glob(filepath.Join(folder, "nvidia", "*", "include"))
		if err != nil {
			return "", err
		}
		for _, include := range includes {
			if err := os.CopyFS(scratch, os.DirFS(include)); err != nil {
				return "", err
			}
		}
	}
	if err := os.WriteFile(filepath.Join(scratch, ".wheels"), []byte(key), 0o644); err != nil {
		return "", err
	}
	return dir, place(scratch, dir)
}

// libraryFile is the file name of a built library.
func libraryFile(l library, target string) string {
	if target == windowsTarget {
		return l.name + ".dll"
	}
	return "lib" + l.name + ".so"
}

// buildFor builds what a bundle has from this repository: the libraries and the
// programs, as files by their paths in the bundle.
func (p *project) buildFor(ctx context.Context, f flavor, mlxRoot string) (map[string]string, error) {
	tools, err := p.buildTools(ctx, f.target) // before the long downloads
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	build := func(l library, folder string, m mode) error {
		m.target, m.name = f.target, releaseName(f.target)
		if m.cuda != nil {
			m.name += "-" + m.cuda.name
		}
		if m.mlxRoot != "" {
			m.name += "-own"
		}
		dir, err := p.buildLibrary(ctx, tools, l, m, l.name)
		if err != nil {
			return err
		}
		file := libraryFile(l, f.target)
		files["lib/"+folder+"/"+file] = filepath.Join(dir, file)
		return nil
	}
	cpu, gpu := mode{mlxRoot: mlxRoot}, mode{mlxRoot: mlxRoot, cuda: f.cuda}
	if f.cuda != nil {
		cpu.mlxRoot = ""
	}
	if err := build(shim, "cpu", cpu); err != nil {
		return nil, err
	}
	if f.cuda != nil {
		if err := build(shim, f.cuda.name, gpu); err != nil {
			return nil, err
		}
	}
	if err := build(native, "native", mode{}); err != nil {
		return nil, err
	}
	return files, p.buildPrograms(ctx, f, files)
}

// ctest builds and runs the C++ tests of both libraries under the sanitizers, or on
// Windows without them.
func (p *project) ctest(ctx context.Context) error {
	tools, err := p.buildTools(ctx, hostTarget())
	if err != nil {
		return err
	}
	type build struct {
		library
		mode mode
	}
	builds := []build{{shim, modeSanitize}, {native, modeSanitize}, {native, modeThreads}}
	if hostTarget() == windowsTarget {
		builds = []build{{shim, modeRelease}, {native, modeRelease}}
	}
	for _, b := range builds {
		dir, err := p.buildLibrary(ctx, tools, b.library, b.mode, "all")
		if err != nil {
			return err
		}
		if err := p.runCtest(ctx, tools, dir, nil); err != nil {
			return fmt.Errorf("ctest of %s (%s) failed: %w", b.name, b.mode.name, err)
		}
	}
	return nil
}

// runCtest runs the tests of a build folder in an environment, nil for that of dist.
func (p *project) runCtest(ctx context.Context, tools buildTools, dir string, env []string) error {
	cmd := process(ctx, p.root, tools.ctest, "--test-dir", dir, "--output-on-failure", "--no-tests=error")
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, env
	return cmd.Run()
}

// ctestWine builds the C++ tests for Windows, and runs them under Wine with the DLLs of the bundle that setup has made.
func (p *project) ctestWine(ctx context.Context) error {
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	tools, err := p.buildTools(ctx, windowsTarget)
	if err != nil {
		return err
	}
	for _, l := range []library{shim, native} {
		dir, err := p.buildLibrary(ctx, tools, l, mode{name: releaseName(windowsTarget), target: windowsTarget}, "all")
		if err != nil {
			return err
		}
		lib := filepath.Join(p.windowsBin(), "lib")
		var path []string
		for _, folder := range []string{dir, filepath.Join(lib, "cpu"), filepath.Join(lib, "common")} {
			path = append(path, testenv.WindowsPath(folder))
		}
		env := append(testenv.WineEnvironment(testenv.WinePrefix()), "WINEPATH="+strings.Join(path, ";"))
		if err := p.runCtest(ctx, tools, dir, env); err != nil {
			return fmt.Errorf("ctest of %s under Wine failed: %w", l.name, err)
		}
	}
	return nil
}
