package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"mlxcel/tests/driver"
	"mlxcel/tests/testenv"
)

// A part is one independent part of the test run.
type part struct {
	name string
	run  func(ctx context.Context) error
	// vital parts make what all later ones need: after their failure, nothing
	// more is run.
	vital bool
}

// A result is what came of a part.
type result struct {
	name string
	took time.Duration
	err  error
}

// test is the subcommand test. Cheap parts come first, and every part runs
// even when an earlier one has failed.
func test(ctx context.Context, p *project, args []string) error {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	long := flags.Bool("long", false, "install mlx-lm, run the tests that need it, and fuzz each target for a minute")
	windows := flags.Bool("windows", true, "build the bundle for Windows and test it under Wine")
	only := flags.String("only", "", "run the part of this name alone, as in the table at the end")
	if err := parseFlags(p, flags, args); err != nil {
		return err
	}
	parts := []part{
		{name: "gofmt", run: p.checkFormat},
		{name: "go vet", run: p.vet("linux")},
		{name: "go vet (Windows)", run: p.vet("windows")},
		{name: "staticcheck", run: p.staticcheck},
		{name: "actionlint", run: p.actionlint},
		{name: "setup", run: p.setup, vital: true},
		{name: "setup of test tools", run: func(ctx context.Context) error { return p.setupTests(ctx, *long) }, vital: true},
		{name: "setup of Windows", run: func(ctx context.Context) error {
			switch {
			case !*windows:
				p.say("left out, as --windows=false asks")
				return nil
			case hostTarget() == windowsTarget:
				return nil // setup has made its bundle, and Wine is for other systems
			}
			return p.setupWindows(ctx)
		}},
		{name: "bundles", run: func(ctx context.Context) error { return p.testBundles(ctx, *long, *windows) }},
		{name: "ctest", run: p.ctest},
		{name: "ctest under Wine", run: func(ctx context.Context) error {
			if !*long || !*windows || hostTarget() == windowsTarget {
				p.say("left out: --long runs it, where programs for Windows are built on another system")
				return nil
			}
			return p.ctestWine(ctx)
		}},
		{name: "go test", run: func(ctx context.Context) error { return p.goTest(ctx, *long, *windows) }},
		{name: "fuzzing", run: func(ctx context.Context) error { return p.fuzz(ctx, *long) }},
	}
	if *only != "" {
		parts = slices.DeleteFunc(parts, func(part part) bool { return part.name != *only })
		if len(parts) == 0 {
			return fmt.Errorf("there is no part %q", *only)
		}
	}
	return p.report(p.runParts(ctx, parts))
}

// runParts runs parts in order until ctx ends or a vital one fails.
func (p *project) runParts(ctx context.Context, parts []part) []result {
	var results []result
	for _, part := range parts {
		p.say("── %s", part.name)
		start := time.Now()
		err := part.run(ctx)
		results = append(results, result{part.name, time.Since(start), err})
		if err != nil {
			p.say("%s: %v", part.name, err)
		}
		if err != nil && part.vital || ctx.Err() != nil {
			break
		}
	}
	for _, part := range parts[len(results):] {
		results = append(results, result{name: part.name, err: errNotRun})
	}
	return results
}

var errNotRun = errors.New("not run")

// report prints a table of results and returns an error that names the failed
// parts, if any.
func (p *project) report(results []result) error {
	var failed []string
	fmt.Fprintln(p.log)
	for _, r := range results {
		state := "ok"
		if r.err != nil {
			failed = append(failed, r.name)
			if state = "FAILED"; errors.Is(r.err, errNotRun) {
				state = "not run"
			}
		}
		fmt.Fprintf(p.log, "  %-20s %-8s %6.1f s\n", r.name, state, r.took.Seconds())
	}
	fmt.Fprintf(p.log, "parts: %d passed, %d failed\n", len(results)-len(failed), len(failed))
	if len(failed) > 0 {
		return fmt.Errorf("not passed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// vet returns the part that vets everything as built for a system.
func (p *project) vet(system string) func(context.Context) error {
	return func(ctx context.Context) error {
		cmd := p.goTool(ctx, "vet", "./...")
		cmd.Env = append(cmd.Env, "GOOS="+system, "GOARCH=amd64")
		return p.stream(cmd)
	}
}

func (p *project) staticcheck(ctx context.Context) error {
	return p.stream(p.goTool(ctx, "run", p.lock.Go.Staticcheck, "./..."))
}

// actionlint checks the workflows in .github, without shellcheck, which not
// every machine has.
func (p *project) actionlint(ctx context.Context) error {
	return p.stream(p.goTool(ctx, "run", p.lock.Go.Actionlint, "-shellcheck=", "-pyflakes="))
}

// goTest runs every Go test. Results are never taken from Go's cache, which
// does not see the libraries and models that tests load.
func (p *project) goTest(ctx context.Context, long, windows bool) error {
	timeout := "25m"
	if long {
		timeout = "90m"
	}
	cmd := p.goTool(ctx, "test", "-count=1", "-timeout="+timeout, "./...")
	cmd.Env = append(cmd.Env, p.testEnvironment(long)...)
	if !windows {
		cmd.Env = append(cmd.Env, "MLXCEL_TEST_WINDOWS=0")
	}
	return p.stream(cmd)
}

// testBundles makes archives, audits them, and runs what is for this system; with
// long also those with NVIDIA's libraries, which are large.
func (p *project) testBundles(ctx context.Context, long, windows bool) error {
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, f := range flavors {
		if f.cuda != nil && (!long || f.variant != "cuda13") || f.windows() && !windows || !f.windows() && hostTarget() != linuxTarget {
			continue
		}
		if err := p.testBundle(ctx, f, long); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

func (p *project) testBundle(ctx context.Context, f flavor, long bool) error {
	b, err := p.bundle(ctx, f, "")
	if err != nil {
		return err
	}
	out, err := p.scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	archive, err := p.writeArchive(ctx, b, out)
	if err != nil {
		return err
	}
	if err := p.auditArchive(ctx, archive, os.Stdout); err != nil {
		return err
	}
	if f.cuda == nil {
		again, err := p.writeArchive(ctx, b, filepath.Join(out, "again"))
		if err != nil {
			return err
		}
		if !sameContent(archive, again) {
			return errors.New("the same input gave another archive")
		}
	}
	if f.cuda == nil && long {
		if err := p.testOwnMLX(ctx, b); err != nil {
			return err
		}
	}
	dir, err := unpackArchive(archive, filepath.Join(out, "unpacked folder, with spaces"))
	if err != nil {
		return err
	}
	for _, backend := range []string{"native", "mlx"} {
		if err := p.runUnpacked(ctx, f, dir, "Paris",
			"generate", "--device", "cpu", "--backend", backend, "-n", "8", "-p", "What is the capital of France?"); err != nil {
			return err
		}
	}
	if f.cuda == nil {
		return nil
	}
	if f.target != hostTarget() {
		if err := p.runUnpacked(ctx, f, dir, "mlxcel: computing on the CPU: there is no NVIDIA driver on this system (nvcuda.dll",
			"generate", "-n", "8", "-p", "What is the capital of France?"); err != nil {
			return err
		}
	}
	uses := "\nuses "
	if f.target != hostTarget() {
		uses = "no NVIDIA driver on this system (nvcuda.dll: Module not found.): until then everything is computed on the CPU" // Wine has none
	}
	if err := p.runUnpacked(ctx, f, dir, uses, "doctor"); err != nil {
		return err
	}
	if err := p.runUnpacked(ctx, f, dir, "every token is right", "selftest", "--report", "selftest.txt"); err != nil {
		return err
	}
	return p.testLostGPU(ctx, f, dir)
}

// testLostGPU runs an unpacked archive with a driver that lists a GPU and fails from then on, so that MLX's own calls and the
// CUDA runtime's fail too.
func (p *project) testLostGPU(ctx context.Context, f flavor, dir string) error {
	if hostTarget() == windowsTarget {
		return nil // a driver is taken from System32 only
	}
	folder, err := p.scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	system := "linux"
	if f.windows() {
		system = "windows"
	}
	library, err := driver.Compile(system, driver.Working, folder)
	if err != nil {
		return err
	}
	if f.windows() {
		data, err := os.ReadFile(library)
		if err != nil {
			return err
		}
		for _, name := range []string{"nvcuda.dll", "nvcudart_hybrid64.dll"} {
			path := filepath.Join(testenv.WinePrefix(), "drive_c", "windows", "system32", name)
			defer os.Remove(path)
			if err := os.WriteFile(path, data, 0o644); err != nil {
				return err
			}
		}
	}
	cmd, output, err := p.execUnpacked(ctx, f, dir, []string{"LD_LIBRARY_PATH=" + folder}, "generate", "-p", "x")
	var exit *exec.ExitError
	sentence := regexp.MustCompile(`(?m)^mlxcel: model .*: the GPU cannot be used: .*; --device cpu computes without it\s*$`)
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !sentence.MatchString(output) {
		return p.failure(cmd, output, "running the unpacked "+f.String(), fmt.Errorf("it does not say that the GPU cannot be used (%v)", err))
	}
	return nil
}

// testOwnMLX makes a bundle with an installed MLX in place of the wheel's. As MLX's wheels are laid out like what its build
// installs, one of them is taken for that: all files are the same, and what is told of their origin is not.
func (p *project) testOwnMLX(ctx context.Context, b *bundle) error {
	own, err := p.bundle(ctx, b.flavor, filepath.Join(p.wheelFolder(b.target, "mlx-cpu"), "mlx"))
	if err != nil {
		return err
	}
	for path, file := range b.files {
		other, there := own.files[path]
		// What a wheel for Linux has beside MLX, an installed one finds in the system.
		if there && !sameContent(file, other) || !there && !strings.Contains(path, ".libs/") {
			return fmt.Errorf("with an installed MLX, %s is missing or another one", path)
		}
	}
	if !strings.Contains(string(own.texts[manifestFile]), "built from source, not from the package") {
		return errors.New("the manifest does not tell that MLX is an installed one")
	}
	return nil
}

// runUnpacked runs the program of an unpacked archive and looks for words in what it writes.
func (p *project) runUnpacked(ctx context.Context, f flavor, dir, words string, args ...string) error {
	cmd, output, err := p.execUnpacked(ctx, f, dir, nil, args...)
	if err == nil && !strings.Contains(output, words) {
		err = fmt.Errorf("it does not say %q", words)
	}
	if err != nil {
		return p.failure(cmd, output, "running the unpacked "+f.String(), err)
	}
	return nil
}

// execUnpacked runs the program of an unpacked archive with arguments, the default model, and more of an environment, under
// Wine if that is for Windows and this is not, and returns what it writes.
func (p *project) execUnpacked(ctx context.Context, f flavor, dir string, env []string, args ...string) (*exec.Cmd, string, error) {
	model := filepath.Join(p.cache, "models", p.lock.Model.Member)
	args = append(args, "-m")
	cmd := process(ctx, p.temporary(), filepath.Join(dir, "mlxcel"+exe()), append(args, model)...)
	cmd.Env = os.Environ()
	if f.target != hostTarget() {
		program, err := wine()
		if err != nil {
			return cmd, "", err
		}
		args = append([]string{filepath.Join(dir, "mlxcel.exe")}, args...)
		cmd = process(ctx, p.temporary(), program, append(args, testenv.WindowsPath(model))...)
		cmd.Env = testenv.WineEnvironment(testenv.WinePrefix())
	}
	cmd.Env = append(slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasPrefix(e, "MLXCEL_") }), env...)
	// Into a file: what Wine starts besides holds a pipe open when the program has ended.
	file, err := os.CreateTemp(p.temporary(), "output")
	if err != nil {
		return cmd, "", err
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	err = cmd.Run()
	written, readErr := os.ReadFile(file.Name())
	return cmd, string(written), cmp.Or(err, readErr)
}

// testEnvironment tells tests where everything is, and that it must be there.
func (p *project) testEnvironment(long bool) []string {
	env := []string{
		"MLXCEL_TEST_STRICT=1",
		"MLXCEL_CACHE=" + p.cache,
		"MLXCEL_BUNDLE=" + p.bin("lib"),
	}
	if long {
		env = append(env, "MLXCEL_TEST_LONG=1")
	}
	return env
}

// stream runs cmd with its output passed through: stdout to stdout, the rest to
// the log.
func (p *project) stream(cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = os.Stdout, p.log
	return cmd.Run()
}
