package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// The targets that there are bundles for.
const (
	linuxTarget   = "linux-amd64"
	windowsTarget = "windows-amd64"
)

// hostTarget is the target that this system can run.
func hostTarget() string {
	if runtime.GOOS == "windows" {
		return windowsTarget
	}
	return linuxTarget
}

// A flavor is what a bundle is made for.
type flavor struct {
	target, variant string
	cuda            *cuda   // nil without MLX for GPUs
	parts           []piece // what it takes from wheels
	// folders must exist although nothing is in them.
	folders []string
}

// A cuda is a version of CUDA that MLX is built with.
type cuda struct {
	name    string   // of the variant and of its folder in lib
	wheel   string   // MLX's package
	headers []string // packages with cuda_runtime.h and what it includes
	include string   // their folder of headers
	driver  string   // the oldest NVIDIA driver that serves it
}

var (
	cuda13 = &cuda{"cuda13", "mlx-cuda-13", []string{"nvidia-cuda-runtime", "nvidia-cuda-crt"}, "nvidia/cu13/include", "580"}
	cuda12 = &cuda{"cuda12", "mlx-cuda-12", []string{"nvidia-cuda-runtime-cu12", "nvidia-cuda-nvcc-cu12"}, "nvidia/cuda_runtime/include", "550"}
)

// A piece is some files of a wheel, and where they go.
type piece struct {
	wheel string
	files string // regular expression for their paths in the wheel; its first group is the path below to
	to    string
}

// What every bundle for a system has. MLX for GPUs cannot compute without one, so bundles with it have MLX for the CPU,
// too.
var (
	windowsParts = []piece{
		{"mlx-cpu", `^mlx/(mlx\.dll)$`, "lib/cpu"},
		{"mlx-cpu", `^mlx/(libopenblas\.dll)$`, "lib/common"},
		{"msvc-runtime", `/Scripts/(msvcp140(?:_atomic_wait)?\.dll|vcruntime140(?:_1)?\.dll)$`, "lib/common"},
	}
	linuxParts = []piece{
		{"mlx-cpu", `^(mlx/lib/libmlx\.so)$`, "lib/cpu"},
		{"mlx-cpu", `^(mlx_cpu\.libs/.+)$`, "lib/cpu"},
	}
)

// kernelHeaders are the headers in MLX's wheel that it compiles kernels with on the user's machine. Its own are in the
// library.
const kernelHeaders = `^mlx/(include/(?:cccl|cute|cutlass)/.+)$`

// flavors are all that there are. NVIDIA's libraries are of the CUDA that MLX was built with, not of the newest, which
// would want a newer driver.
//
// cuda13 has what MLX needs for a language model; in cuda13-full is everything that MLX can ask for: besides
// convolutions and Fourier transforms, which need cuDNN and cuFFT, these are decompositions of matrices. MLX's hook that
// finds libraries ends the process where the folder of cuDNN is missing, even if it is not asked for cuDNN.
var flavors = []flavor{
	{target: linuxTarget, variant: "cpu", parts: linuxParts},
	{target: linuxTarget, variant: "cuda13", cuda: cuda13, parts: slices.Concat(linuxParts, []piece{
		{"mlx-cuda-13", `^(mlx/lib/libmlx\.so)$`, "lib/cuda13"},
		{"mlx-cuda-13", `^(mlx_cuda_13\.libs/.+)$`, "lib/cuda13"},
		{"mlx-cuda-13", kernelHeaders, "lib/cuda13/mlx"},
		{"nvidia-cublas", `^(nvidia/cu13/lib/libcublasLt\.so\.13)$`, "lib/cuda13"},
		{"nvidia-cuda-nvrtc", `^(nvidia/cu13/lib/libnvrtc(?:-builtins)?\.so\.[0-9.]+)$`, "lib/cuda13"},
		{"nvidia-cuda-runtime", `^(nvidia/cu13/include/.+)$`, "lib/cuda13"},
		{"nvidia-cuda-crt", `^(nvidia/cu13/include/.+)$`, "lib/cuda13"},
	})},
	{target: windowsTarget, variant: "cpu", parts: windowsParts},
	{target: windowsTarget, variant: "cuda13", cuda: cuda13, folders: []string{"lib/nvidia/cudnn/bin"},
		parts: slices.Concat(windowsParts, windowsCUDA13)},
	{target: windowsTarget, variant: "cuda13-full", cuda: cuda13, parts: slices.Concat(windowsParts, windowsCUDA13, []piece{
		{"nvidia-cublas", `/(cublas64_13\.dll)$`, "lib/nvidia/cublas/bin"},
		{"nvidia-cudnn-cu13", `/(cudnn[a-z_]*64_9\.dll)$`, "lib/nvidia/cudnn/bin"},
		{"nvidia-cufft", `/(cufft64_12\.dll)$`, "lib/nvidia/cufft/bin"},
		{"nvidia-cusolver", `/(cusolver64_12\.dll)$`, "lib/nvidia/cusolver/bin"},
		{"nvidia-cusparse", `/(cusparse64_12\.dll)$`, "lib/nvidia/cusparse/bin"},
		{"nvidia-nvjitlink", `/(nvJitLink_130_0\.dll)$`, "lib/nvidia/nvjitlink/bin"},
	})},
	{target: windowsTarget, variant: "cuda12", cuda: cuda12, parts: slices.Concat(windowsParts, []piece{
		{"mlx-cuda-12", `^mlx/(mlx\.dll)$`, "lib/cuda12"},
		{"mlx-cuda-12", kernelHeaders, "lib/cuda12"},
		{"nvidia-cublas-cu12", `/(cublas(?:Lt)?64_12\.dll)$`, "lib/nvidia/cublas/bin"},
		{"nvidia-cuda-nvrtc-cu12", `/(nvrtc(?:64_120_0|-builtins64_\d+)\.dll)$`, "lib/nvidia/cuda_nvrtc/bin"},
		{"nvidia-cuda-runtime-cu12", `^nvidia/cuda_runtime/(include/.+)$`, "lib/nvidia/cuda_runtime"},
		{"nvidia-cuda-nvcc-cu12", `^nvidia/cuda_nvcc/(include/crt/.+)$`, "lib/nvidia/cuda_runtime"},
		{"nvidia-cudnn-cu12", `/(cudnn[a-z_]*64_9\.dll)$`, "lib/nvidia/cudnn/bin"},
		{"nvidia-cufft-cu12", `/(cufft64_11\.dll)$`, "lib/nvidia/cufft/bin"},
		{"nvidia-cusolver-cu12", `/(cusolver64_11\.dll)$`, "lib/nvidia/cusolver/bin"},
		{"nvidia-cusparse-cu12", `/(cusparse64_12\.dll)$`, "lib/nvidia/cusparse/bin"},
		{"nvidia-nvjitlink-cu12", `/(nvJitLink_120_0\.dll)$`, "lib/nvidia/nvjitlink/bin"},
	})},
}

var windowsCUDA13 = []piece{
	{"mlx-cuda-13", `^mlx/(mlx\.dll)$`, "lib/cuda13"},
	{"mlx-cuda-13", kernelHeaders, "lib/cuda13"},
	{"nvidia-cublas", `/(cublasLt64_13\.dll)$`, "lib/nvidia/cublas/bin"},
	{"nvidia-cuda-nvrtc", `/(nvrtc(?:64_130_0|-builtins64_\d+)\.dll)$`, "lib/nvidia/cuda_nvrtc/bin"},
	{"nvidia-cuda-runtime", `^nvidia/cu13/(include/.+)$`, "lib/nvidia/cu13"},
	{"nvidia-cuda-crt", `^nvidia/cu13/(include/.+)$`, "lib/nvidia/cu13"},
}

// findFlavor returns the flavor of that name, or says which there are.
func findFlavor(target, variant string) (flavor, error) {
	var names []string
	for _, f := range flavors {
		if f.target == target && f.variant == variant {
			return f, nil
		}
		names = append(names, f.String())
	}
	return flavor{}, fmt.Errorf("there is no bundle of the variant %q for %q, only %s", variant, target, strings.Join(names, ", "))
}

func (f flavor) String() string { return f.target + "-" + f.variant }

func (f flavor) windows() bool { return f.target == windowsTarget }

// A bundle is a folder that programs run from, before it is written anywhere.
type bundle struct {
	flavor
	version string            // of mlxcel
	files   map[string]string // where what is to be found, by path in the bundle, with slashes
	texts   map[string][]byte // files whose content is made here
	sources []component
}

func (b *bundle) add(path, file string) error {
	if other, taken := b.files[path]; taken {
		return fmt.Errorf("both %s and %s would be %s in the bundle", other, file, path)
	}
	b.files[path] = file
	return nil
}

// bundle builds what is built here, fetches the rest, and says what goes where:
//
//	mlxcel mlxcel-server            with .exe on Windows
//	lib/native/, lib/cpu/, …        see package loader
//	licenses/                       a folder for each component
//	README.txt manifest.json
//
// What is built here is signed where MLXCEL_SIGN asks for it. With mlxRoot, an installed build of MLX, that takes the place of MLX's wheel for the variant.
func (p *project) bundle(ctx context.Context, f flavor, mlxRoot string) (*bundle, error) {
	version, err := p.version()
	if err != nil {
		return nil, err
	}
	b := &bundle{flavor: f, version: version, files: map[string]string{}, texts: map[string][]byte{}}
	builds, err := p.buildFor(ctx, f, mlxRoot)
	if err != nil {
		return nil, err
	}
	for path, file := range builds {
		if err := b.add(path, file); err != nil {
			return nil, err
		}
	}
	replaced := ""
	if mlxRoot != "" {
		replaced = "mlx-cpu"
		if f.cuda != nil {
			replaced = f.cuda.wheel
		}
	}
	wheels := map[string]bool{}
	for _, part := range f.parts {
		folder, err := p.unpackWheel(ctx, f.target, part.wheel)
		if err != nil {
			return nil, err
		}
		if part.wheel == replaced {
			folder = mlxRoot
		}
		if err := b.take(part, folder, part.wheel == replaced); err != nil {
			return nil, err
		}
		wheels[part.wheel] = true
	}
	if f.cuda != nil && !f.windows() {
		if err := p.addTraps(ctx, b); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wheels)) {
		if err := p.addWheelLicenses(b, name, name == replaced); err != nil {
			return nil, err
		}
	}
	if err := p.addProgramLicenses(ctx, b); err != nil {
		return nil, err
	}
	if err := p.sign(ctx, b, builds); err != nil {
		return nil, err
	}
	b.texts["README.txt"] = []byte(b.readme(p.lock.MLX.Version))
	return b, p.addManifest(b)
}

// sign has each of our own files signed by the command in MLXCEL_SIGN, with the file's path behind it, where that is set.
func (p *project) sign(ctx context.Context, b *bundle, built map[string]string) error {
	command := strings.Fields(os.Getenv("MLXCEL_SIGN"))
	if len(command) == 0 || !b.windows() {
		return nil
	}
	for i, word := range command {
		command[i] = strings.Trim(word, `"`)
	}
	for _, path := range sortedKeys(built) {
		// A copy: what is built again later must not be taken for unsigned.
		signed := filepath.Join(p.buildFolder("signed-"+b.variant), filepath.FromSlash(path))
		if err := placeCopy(built[path], signed); err != nil {
			return err
		}
		if err := p.quietly(process(ctx, p.root, command[0], append(command[1:], signed)...), "signing "+path); err != nil {
			return err
		}
		b.files[path] = signed
	}
	return nil
}

// take adds a piece's files from the folder of its wheel, or of an installed MLX, which is a wheel's folder mlx but has
// DLLs in bin.
func (b *bundle) take(part piece, folder string, installed bool) error {
	pattern, found := regexp.MustCompile(part.files), false
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(relative)
		if installed {
			path = "mlx/" + strings.TrimPrefix(path, "bin/")
		}
		match := pattern.FindStringSubmatch(path)
		if match == nil {
			return nil
		}
		found = true
		return b.add(part.to+"/"+match[1], file)
	})
	// What a wheel brings for MLX may be linked into a build of one's own.
	optional := installed && !strings.Contains(part.files, "libmlx") && !strings.Contains(part.files, `mlx\.dll`)
	if err == nil && !found && !optional {
		err = fmt.Errorf("%s holds no file that matches %s", folder, part.files)
	}
	return err
}

// name is the bundle's name: of its archive, without what tells the kind of archive.
func (b *bundle) name() string { return "mlxcel-" + b.version + "-" + b.flavor.String() }

// install makes dir hold the bundle. Only what differs is copied; what an earlier bundle has left in lib and licenses is
// removed.
func (b *bundle) install(p *project, dir string) error {
	changed := false
	note := func() {
		if !changed {
			p.say("assembling the bundle %s", dir)
		}
		changed = true
	}
	for _, path := range slices.Sorted(maps.Keys(b.files)) {
		target := filepath.Join(dir, filepath.FromSlash(path))
		if sameContent(b.files[path], target) {
			continue
		}
		note()
		if err := placeCopy(b.files[path], target); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(b.texts)) {
		target := filepath.Join(dir, filepath.FromSlash(path))
		if have, err := os.ReadFile(target); err == nil && string(have) == string(b.texts[path]) {
			continue
		}
		note()
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, b.texts[path], 0o644); err != nil {
			return err
		}
	}
	for _, folder := range []string{"lib", "licenses"} {
		if err := b.removeOthers(dir, folder); err != nil {
			return err
		}
	}
	for _, folder := range b.folders {
		if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(folder)), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeOthers removes the files below a folder of dir that are not the bundle's.
func (b *bundle) removeOthers(dir, folder string) error {
	root := filepath.Join(dir, folder)
	if !exists(root) {
		return nil
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(relative)
		if b.files[name] != "" || b.texts[name] != nil {
			return nil
		}
		return os.Remove(path)
	})
}

// sameContent says whether two files hold the same.
func sameContent(a, b string) bool {
	first, err1 := os.Stat(a)
	second, err2 := os.Stat(b)
	if err1 != nil || err2 != nil || first.Size() != second.Size() {
		return false
	}
	_, sum, err := hashFile(a)
	return err == nil && checkHash(b, sum) == nil
}

// bundleCommand is the subcommand bundle.
func bundleCommand(ctx context.Context, p *project, args []string) error {
	flags := flag.NewFlagSet("bundle", flag.ContinueOnError)
	target := flags.String("target", hostTarget(), "the system that it is for: linux-amd64, windows-amd64")
	variant := flags.String("variant", "cpu", "cpu, cuda13, cuda13-full (with all that MLX can ask for) or cuda12")
	mlxRoot := flags.String("mlx-root", "", "an installed build of MLX, in place of the wheel's: a folder with include, lib and, on Windows, bin")
	out := flags.String("out", p.path("out"), "the folder to write to")
	if err := parseFlags(p, flags, args); err != nil {
		return err
	}
	f, err := findFlavor(*target, *variant)
	if err != nil {
		return err
	}
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	if *mlxRoot != "" {
		if *mlxRoot, err = filepath.Abs(*mlxRoot); err != nil {
			return err
		}
	}
	b, err := p.bundle(ctx, f, *mlxRoot)
	if err != nil {
		return err
	}
	path, err := p.writeArchive(ctx, b, *out)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	p.say("wrote %s, %.1f MB", path, float64(info.Size())/1e6)
	return nil
}
