package main

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// leftOut are libraries that MLX for CUDA is linked to on Linux although nothing of a language model calls them, by a
// prefix of their functions: cuDNN, cuFFT, cuSOLVER, NCCL. On Windows MLX loads them when it first calls them.
var leftOut = map[string]string{
	"libcudnn.so.9":     "cudnn",
	"libcufft.so.12":    "cufft",
	"libcusolver.so.12": "cusolver",
	"libnccl.so.2":      "nccl",
}

// addTraps adds small libraries in place of those left out, whose functions end the process with a sentence that names
// them. The shim refuses what would call them.
func (p *project) addTraps(ctx context.Context, b *bundle) error {
	mlx := b.files[b.mlxFile()]
	file, err := elf.Open(mlx)
	if err != nil {
		return fmt.Errorf("%s: %w", mlx, err)
	}
	defer file.Close()
	symbols, err := file.ImportedSymbols()
	if err != nil {
		return fmt.Errorf("%s: %w", mlx, err)
	}
	compiler, err := p.compiler(ctx)
	if err != nil {
		return err
	}
	dir := p.buildFolder("traps-" + b.variant)
	for _, library := range sortedKeys(leftOut) {
		var names []string
		version := ""
		for _, s := range symbols {
			if s.Library == library {
				version = s.Version
			}
			if strings.HasPrefix(s.Name, leftOut[library]) {
				names = append(names, s.Name)
			}
		}
		slices.Sort(names)
		target := filepath.Join(dir, library)
		if err := p.compileTrap(ctx, compiler, target, trapSource(library, slices.Compact(names)), version); err != nil {
			return err
		}
		if err := b.add(path.Join("lib", b.cuda.name, "nvidia/cu13/lib", library), target); err != nil {
			return err
		}
	}
	return nil
}

func trapSource(library string, names []string) string {
	var s strings.Builder
	s.WriteString("#include <stdio.h>\n#include <stdlib.h>\n" +
		"static void trap(const char* name) { fprintf(stderr, \"mlxcel: %s was called, of " + library +
		", which this release leaves out\\n\", name); abort(); }\n")
	for _, name := range names {
		fmt.Fprintf(&s, "extern \"C\" void %s(void) { trap(%q); }\n", name, name)
	}
	return s.String()
}

// compileTrap compiles a library of traps, whose symbols have the given version, unless it is there.
func (p *project) compileTrap(ctx context.Context, compiler, target, source, version string) error {
	text := target + ".cpp"
	if have, err := os.ReadFile(text); err == nil && string(have) == source && exists(target) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	args := []string{"-shared", "-fPIC", "-Os", "-s", "-o", target, "-Wl,-soname," + filepath.Base(target), "-Wl,-z,defs"}
	if version != "" {
		script := target + ".map"
		if err := os.WriteFile(script, []byte(version+" { global: *; };\n"), 0o644); err != nil {
			return err
		}
		args = append(args, "-Wl,--version-script="+script)
	}
	work := target + ".tmp.cpp"
	if err := os.WriteFile(work, []byte(source), 0o644); err != nil {
		return err
	}
	defer os.Remove(work)
	if err := p.quietly(process(ctx, filepath.Dir(target), compiler, append(args, work)...), "compiling "+target); err != nil {
		return err
	}
	// The source is written last, as it says that the library is whole.
	return os.WriteFile(text, []byte(source), 0o644)
}
