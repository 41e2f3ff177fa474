package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// unpackMLX makes the folder of the unpacked MLX wheel and returns it.
func (p *project) unpackMLX(ctx context.Context) (string, error) {
	dir := p.mlxFolder()
	// The folder says from which wheel it comes; it is moved here when whole.
	source := filepath.Join(dir, ".wheel")
	if sum, err := os.ReadFile(source); err == nil && string(sum) == p.lock.MLX.SHA256 {
		return dir, nil
	}
	wheel, err := p.download(ctx, p.lock.MLX)
	if err != nil {
		return "", err
	}
	p.say("unpacking %s", p.lock.MLX)
	scratch, err := p.scratch()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	if err := unzip(wheel, scratch); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(scratch, ".wheel"), []byte(p.lock.MLX.SHA256), 0o644); err != nil {
		return "", err
	}
	return dir, place(scratch, dir)
}

// The modes in which the library is built.
const (
	modeRelease  = "release"
	modeSanitize = "sanitize" // with its C++ tests, under ASan and UBSan
)

// buildShim builds target of mlxshim in the given mode and returns the build
// folder.
func (p *project) buildShim(ctx context.Context, tools buildTools, mode, target string) (string, error) {
	source := filepath.Join(p.root, "mlxshim")
	dir := p.buildFolder(mode)
	if err := p.configureShim(ctx, tools, mode, source, dir); err != nil {
		return "", err
	}
	build := []string{"-C", dir, target}
	plan, err := capture(process(ctx, p.root, tools.ninja, append([]string{"-n"}, build...)...))
	if err == nil && strings.Contains(plan, "no work to do") {
		return dir, nil
	}
	p.say("building mlxshim (%s) in %s", mode, dir)
	return dir, p.quietly(process(ctx, p.root, tools.ninja, build...), "building mlxshim")
}

// configureShim runs CMake when it has not run with these arguments; later
// changes in CMakeLists.txt are Ninja's business.
func (p *project) configureShim(ctx context.Context, tools buildTools, mode, source, dir string) error {
	args := []string{
		"-S", source, "-B", dir, "-G", "Ninja",
		"-DCMAKE_BUILD_TYPE=Release",
		"-DCMAKE_CXX_COMPILER=" + tools.compiler,
		"-DCMAKE_MAKE_PROGRAM=" + tools.ninja,
		"-DMLX_ROOT=" + filepath.Join(p.mlxFolder(), "mlx"),
	}
	if mode == modeSanitize {
		args = append(args, "-DMLXSHIM_SANITIZE=ON")
	}
	configured := filepath.Join(dir, ".configured")
	arguments := strings.Join(append([]string{tools.cmake}, args...), "\n")
	if have, err := os.ReadFile(configured); err == nil && string(have) == arguments && exists(filepath.Join(dir, "build.ninja")) {
		return nil
	}
	if !exists(filepath.Join(source, "CMakeLists.txt")) {
		return errors.New("mlxshim/CMakeLists.txt is missing: restore it with `git checkout mlxshim`")
	}
	p.say("configuring mlxshim (%s)", mode)
	// CMake wants a new folder for another compiler or generator.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := p.quietly(process(ctx, p.root, tools.cmake, args...), "configuring mlxshim"); err != nil {
		return err
	}
	return os.WriteFile(configured, []byte(arguments), 0o644)
}

// ctest builds and runs the C++ tests under the sanitizers.
func (p *project) ctest(ctx context.Context) error {
	tools, err := p.buildTools(ctx)
	if err != nil {
		return err
	}
	dir, err := p.buildShim(ctx, tools, modeSanitize, "all")
	if err != nil {
		return err
	}
	cmd := process(ctx, p.root, tools.ctest, "--test-dir", dir, "--output-on-failure", "--no-tests=error")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ctest failed: %w", err)
	}
	return nil
}
