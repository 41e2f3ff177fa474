package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// llama.cpp is the peer of `bench cpu`. Its source comes inside a package of
// Python bindings, and it is built here for this processor; nothing of it is
// part of mlxcel.

// pipSource is the fetchFunc of source packages. pip asks a package's build
// system for its name even when it only fetches, so that must be there.
func (p *project) pipSource(ctx context.Context, a artifact, dir string) error {
	bin, err := p.environment(ctx, "source", pipSet{pins: p.lock.Python.Source, deps: true})
	if err != nil {
		return err
	}
	cmd := process(ctx, dir, filepath.Join(bin, "python"), "-m", "pip", "download", "--no-deps", "--no-binary=:all:",
		"--no-build-isolation", "--no-input", "--disable-pip-version-check", "--dest", dir, a.Name+"=="+a.Version)
	if output, err := capture(cmd); err != nil {
		return p.clientFailure(cmd, output, "pip", a.String(), err)
	}
	return nil
}

// llamaTools are the programs of llama.cpp that benchmarks run.
var llamaTools = []string{"llama-bench", "llama-batched-bench", "llama-server"}

// llama returns the folder of llama.cpp's programs: that of $MLXCEL_LLAMA_BIN, or
// of a build for this processor.
func (p *project) llama(ctx context.Context, tools buildTools) (string, error) {
	if bin := os.Getenv("MLXCEL_LLAMA_BIN"); bin != "" {
		return bin, nil
	}
	return p.buildLlama(ctx, tools)
}

// buildLlama builds llama.cpp and returns the folder of its programs. It takes
// about ten minutes on two cores, once.
func (p *project) buildLlama(ctx context.Context, tools buildTools) (string, error) {
	version := p.lock.Llama.Version
	source := filepath.Join(p.cache, "llama", version, "source")
	build := filepath.Join(p.cache, "llama", version, "build")
	bin := filepath.Join(build, "bin")
	done := filepath.Join(build, ".built")
	if exists(done) {
		return bin, nil
	}
	if !exists(source) {
		tarball, err := p.download(ctx, p.lock.Llama)
		if err != nil {
			return "", err
		}
		scratch, err := p.scratch()
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(scratch)
		p.say("unpacking %s", p.lock.Llama)
		if err := p.quietly(process(ctx, scratch, "tar", "-xzf", tarball), "unpacking "+p.lock.Llama.String()); err != nil {
			return "", err
		}
		if err := place(scratch, source); err != nil {
			return "", err
		}
	}
	p.say("building llama.cpp for this processor in %s: about ten minutes", build)
	found, err := filepath.Glob(filepath.Join(source, "*", "vendor", "llama.cpp"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s holds no source of llama.cpp: remove it and run the command again", source)
	}
	configure := append([]string{"-S", found[0], "-B", build, "-G", "Ninja", "-DCMAKE_MAKE_PROGRAM=" + tools.ninja,
		"-DCMAKE_CXX_COMPILER=" + tools.compiler, "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF",
		"-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_APP=OFF"}, llamaSets()...)
	if err := p.quietly(process(ctx, p.root, tools.cmake, configure...), "configuring llama.cpp"); err != nil {
		return "", err
	}
	if err := p.quietly(process(ctx, p.root, tools.ninja, append([]string{"-C", build}, llamaTools...)...), "building llama.cpp"); err != nil {
		return "", err
	}
	return bin, os.WriteFile(done, nil, 0o644)
}

// llamaSets are CMake's settings for the instruction sets of this processor. AMX
// is left out: llama.cpp's code for it crashed on the machines of ours that have
// it.
func llamaSets() []string {
	settings := []string{"-DGGML_NATIVE=OFF"}
	has := processorFlags()
	for _, set := range []struct{ flag, names string }{
		{"avx2", "AVX2 FMA F16C BMI2"}, {"avx512bw", "AVX512"}, {"avx512_vbmi", "AVX512_VBMI"},
		{"avx512_vnni", "AVX512_VNNI"}, {"avx512_bf16", "AVX512_BF16"}, {"avx_vnni", "AVX_VNNI"},
	} {
		if has[set.flag] {
			for _, name := range strings.Fields(set.names) {
				settings = append(settings, "-DGGML_"+name+"=ON")
			}
		}
	}
	return settings
}

// processorFlags are the instruction sets that Linux reports.
func processorFlags() map[string]bool {
	flags := map[string]bool{}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return flags
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			for _, flag := range strings.Fields(value) {
				flags[flag] = true
			}
			break
		}
	}
	return flags
}
