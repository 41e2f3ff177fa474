package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// MLX compiles kernels on the user's machine, from sources in the library that include headers of the bundle. Here a
// C++ preprocessor stands in for NVRTC, for each generation of GPUs, as headers differ by it.
var headerArchitectures = []string{"750", "800", "900", "1000", "1200"}

// nvrtcHeaders are those that NVRTC brings itself.
var nvrtcHeaders = []string{"target", "nvrtc_device_runtime.h"}

var includeLine = regexp.MustCompile(`#include <([A-Za-z0-9_./-]+)>`)

// checkHeaders checks that the headers which MLX names, and those that they include, are in the bundle.
func (a *audit) checkHeaders(ctx context.Context, f flavor) error {
	library, folder, toolkit := "lib/"+f.cuda.name+"/mlx.dll", "lib/"+f.cuda.name+"/include", "lib/"+strings.TrimSuffix(f.cuda.include, "/")
	if !f.windows() {
		library, folder, toolkit = "lib/"+f.cuda.name+"/mlx/lib/libmlx.so", "lib/"+f.cuda.name+"/mlx/include", "lib/"+f.cuda.name+"/"+f.cuda.include
	}
	code, err := os.ReadFile(a.file(library))
	if err != nil {
		return err
	}
	var names []string
	for _, match := range includeLine.FindAllSubmatch(code, -1) {
		names = append(names, string(match[1]))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		a.problem("%s names no headers: this check is out of date", library)
		return nil
	}
	version, err := cudaVersion(a.file(toolkit))
	if err != nil {
		a.problem("%v", err)
		return nil
	}
	compiler, err := a.p.compiler(ctx)
	if err != nil {
		return err
	}
	own, err := a.p.scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	for _, name := range nvrtcHeaders {
		if err := os.WriteFile(filepath.Join(own, name), nil, 0o644); err != nil {
			return err
		}
	}
	var source strings.Builder
	for _, name := range names {
		fmt.Fprintf(&source, "#include <%s>\n", name)
	}
	read := map[string]bool{}
	for _, architecture := range headerArchitectures {
		args := []string{
			"-E", "-H", "-nostdinc", "-undef", "-x", "c++", "-std=c++20", "-D__CUDACC_RTC__", "-D__CUDACC__",
			"-D__CUDA_ARCH__=" + architecture, fmt.Sprintf("-DCUDART_VERSION=%d", version),
			fmt.Sprintf("-D__CUDACC_VER_MAJOR__=%d", version/1000), fmt.Sprintf("-D__CUDACC_VER_MINOR__=%d", version%1000/10),
			"-I", a.file(folder), "-I", a.file(folder + "/cccl"), "-I", a.file(toolkit), "-idirafter", own,
		}
		if f.windows() {
			args = append(args, "-D_WIN32", "-D_WIN64")
		}
		cmd := process(ctx, own, compiler, append(args, "-")...)
		cmd.Stdin = strings.NewReader(source.String())
		var log bytes.Buffer
		cmd.Stderr = &log // stdout, the whole text, is not wanted
		failed := cmd.Run()
		for line := range strings.Lines(log.String()) {
			if dots, path, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.Trim(dots, ".") == "" && within(a.dir, path) {
				read[path] = true
			} else if strings.Contains(line, "error:") {
				a.problem("headers for kernels, compute capability %s: %s", architecture, strings.ReplaceAll(strings.TrimSpace(line), a.dir+"/", ""))
			}
		}
		if failed != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	a.note("")
	a.note("%d headers that MLX names, with all that they include for %d generations of GPUs: %d files, none of them missing", len(names), len(headerArchitectures), len(read))
	return nil
}

var cudartVersion = regexp.MustCompile(`(?m)^#define CUDART_VERSION\s+(\d+)`)

// cudaVersion is the version of CUDA that headers are of, 13000 for 13.0.
func cudaVersion(folder string) (version int, err error) {
	text, err := os.ReadFile(filepath.Join(folder, "cuda_runtime_api.h"))
	if err != nil {
		return 0, err
	}
	match := cudartVersion.FindSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("%s/cuda_runtime_api.h does not tell its version", folder)
	}
	_, err = fmt.Sscan(string(match[1]), &version)
	return version, err
}
