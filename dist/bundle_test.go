package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// small returns a bundle of a few small files, and where they are.
func small(t *testing.T, target string) (*bundle, string) {
	t.Helper()
	from := t.TempDir()
	f, err := findFlavor(target, "cpu")
	require.NoError(t, err)
	f.folders = []string{"lib/empty/bin"}
	return &bundle{
		flavor:  f,
		version: "1.2.3",
		files:   map[string]string{"mlxcel": write(t, "program", from, "x"), "lib/cpu/a.so": write(t, "library", from, "y")},
		texts:   map[string][]byte{"README.txt": []byte("read me")},
	}, from
}

func TestInstall(t *testing.T) {
	p, log := newProject(t)
	b, from := small(t, linuxTarget)
	dir := t.TempDir()
	stale := write(t, "", dir, "lib", "cpu", "old.so")
	model := write(t, "", dir, "models", "a.gguf")
	require.NoError(t, b.install(p, dir))
	require.NoFileExists(t, stale)
	require.FileExists(t, model)
	require.DirExists(t, filepath.Join(dir, "lib", "empty", "bin"))
	text, err := os.ReadFile(filepath.Join(dir, "README.txt"))
	require.NoError(t, err)
	require.Equal(t, "read me", string(text))
	require.Contains(t, log.String(), "assembling")

	// Nothing is copied again, but what has changed is.
	log.Reset()
	before, err := os.Stat(filepath.Join(dir, "mlxcel"))
	require.NoError(t, err)
	require.NoError(t, b.install(p, dir))
	after, err := os.Stat(filepath.Join(dir, "mlxcel"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.Empty(t, log.String())

	write(t, "damaged", dir, "lib", "cpu", "a.so")
	require.NoError(t, b.install(p, dir))
	require.Contains(t, log.String(), "assembling")
	require.True(t, sameContent(filepath.Join(from, "y"), filepath.Join(dir, "lib", "cpu", "a.so")))
}

func TestArchivesAreTheSameEachTime(t *testing.T) {
	p, _ := newProject(t)
	for _, target := range []string{linuxTarget, windowsTarget} {
		b, from := small(t, target)
		first, err := p.writeArchive(t.Context(), b, t.TempDir())
		require.NoError(t, err)
		// Neither times nor modes of the files count.
		require.NoError(t, os.Chtimes(filepath.Join(from, "x"), archiveTime, archiveTime))
		require.NoError(t, os.Chmod(filepath.Join(from, "x"), 0o600))
		second, err := p.writeArchive(t.Context(), b, t.TempDir())
		require.NoError(t, err)
		require.True(t, sameContent(first, second))

		dir, err := unpackArchive(first, t.TempDir())
		require.NoError(t, err)
		require.Equal(t, "mlxcel-1.2.3-"+target+"-cpu", filepath.Base(dir))
		require.DirExists(t, filepath.Join(dir, "lib", "empty", "bin"))
		require.True(t, sameContent(filepath.Join(from, "y"), filepath.Join(dir, "lib", "cpu", "a.so")))
		info, err := os.Stat(filepath.Join(dir, "mlxcel"))
		require.NoError(t, err)
		require.EqualValues(t, 0o755, info.Mode().Perm())
	}
}

func TestTake(t *testing.T) {
	wheel := t.TempDir()
	write(t, "", wheel, "mlx", "mlx.dll")
	write(t, "", wheel, "mlx", "include", "cccl", "cuda", "atomic")
	write(t, "", wheel, "mlx", "include", "mlx", "array.h")
	b := &bundle{files: map[string]string{}}
	require.NoError(t, b.take(piece{"mlx-cuda-13", kernelHeaders, "lib/cuda13"}, wheel, false))
	require.Equal(t, []string{"lib/cuda13/include/cccl/cuda/atomic"}, sortedKeys(b.files))
	require.ErrorContains(t, b.take(piece{"mlx-cuda-13", kernelHeaders, "lib/cuda13"}, wheel, false), "would be lib/cuda13/include/cccl/cuda/atomic")
	require.ErrorContains(t, b.take(piece{"x", `^(none)$`, "lib"}, wheel, false), "no file that matches")

	// An installed MLX in place of the wheel; it may lack what the wheel brings with it.
	installed := t.TempDir()
	write(t, "", installed, "bin", "mlx.dll")
	b = &bundle{files: map[string]string{}}
	for _, part := range windowsParts[:2] {
		require.NoError(t, b.take(part, installed, true))
	}
	require.Equal(t, []string{"lib/cpu/mlx.dll"}, sortedKeys(b.files))
	require.Error(t, b.take(windowsParts[0], t.TempDir(), true))
}

// Every package of every bundle is pinned, and the patterns can be used.
func TestFlavors(t *testing.T) {
	p, _ := newProject(t)
	for _, f := range flavors {
		for _, part := range f.parts {
			require.NotEmpty(t, p.wheel(f.target, part.wheel).SHA256, part.wheel)
			require.Equal(t, 1, regexp.MustCompile(part.files).NumSubexp(), part.files)
		}
		if f.cuda != nil {
			for _, name := range f.cuda.headers {
				require.NotEmpty(t, p.wheel(f.target, name).SHA256, f)
			}
		}
	}
	_, err := findFlavor(linuxTarget, "cuda14")
	require.ErrorContains(t, err, "linux-amd64-cuda13")
}

func TestVersion(t *testing.T) {
	p, _ := newProject(t)
	write(t, "package cli\n\nconst Version = \"4.5.6\"\n", p.root, "cmd", "internal", "cli", "version.go")
	version, err := p.version()
	require.NoError(t, err)
	require.Equal(t, "4.5.6", version)
}

// makeLibrary compiles an empty shared library that needs others.
func makeLibrary(t *testing.T, path, runpath string, needs ...string) {
	t.Helper()
	p, _ := newProject(t)
	compiler, err := p.compiler(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	source := write(t, "", t.TempDir(), "empty.cpp")
	args := []string{"-shared", "-nostdlib", "-o", path, source, "-Wl,--no-as-needed", "-Wl,-soname," + filepath.Base(path)}
	if runpath != "" {
		args = append(args, "-Wl,-rpath,"+runpath)
	}
	output, err := exec.Command(compiler, append(args, needs...)...).CombinedOutput()
	require.NoError(t, err, string(output))
}

func TestClosure(t *testing.T) {
	dir := t.TempDir()
	blas, mlx, shim := filepath.Join(dir, "libs", "libblas.so.3"), filepath.Join(dir, "mlx", "lib", "libmlx.so"), filepath.Join(dir, "libshim.so")
	makeLibrary(t, blas, "")
	makeLibrary(t, mlx, "$ORIGIN/../../libs", blas)
	makeLibrary(t, shim, "$ORIGIN/mlx/lib", mlx)
	used, err := checkClosure(dir, "libshim.so")
	require.NoError(t, err)
	require.Equal(t, []string{"libs/libblas.so.3", "libshim.so", "mlx/lib/libmlx.so"}, sortedKeys(used))

	elsewhere := filepath.Join(t.TempDir(), "libblas.so.3")
	require.NoError(t, os.Rename(blas, elsewhere))
	_, err = checkClosure(dir, "libshim.so")
	require.ErrorContains(t, err, "libmlx.so needs libblas.so.3")

	outside := filepath.Join(filepath.Dir(dir), "outside")
	makeLibrary(t, filepath.Join(outside, "libblas.so.3"), "")
	makeLibrary(t, shim, "$ORIGIN/../outside", elsewhere)
	_, err = checkClosure(dir, "libshim.so")
	require.ErrorContains(t, err, "outside the bundle")

	makeLibrary(t, shim, filepath.Dir(elsewhere), elsewhere)
	_, err = checkClosure(dir, "libshim.so")
	require.ErrorContains(t, err, "not relative to itself")
}

// A library of this machine needs its glibc, and no library of a bundle may need a newer one than is promised.
func TestGlibcFloor(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "libnone.so")
	makeLibrary(t, none, "")
	floor, err := glibcFloor([]string{none})
	require.NoError(t, err)
	require.Equal(t, "2.2.5", floor)

	program, err := os.Executable() // Go's own: no C at all
	require.NoError(t, err)
	_, err = glibcFloor([]string{program})
	require.NoError(t, err)

	p, _ := newProject(t)
	compiler, err := p.compiler(t.Context())
	require.NoError(t, err)
	// A stand-in for the C library of a distant future.
	script := write(t, "GLIBC_2.99 { global: *; };\n", dir, "map")
	libc, user := filepath.Join(dir, "libc.so.6"), filepath.Join(dir, "libuser.so")
	for _, command := range [][]string{
		{compiler, "-shared", "-nostdlib", "-o", libc, write(t, `extern "C" void later() {}`, dir, "c.cpp"), "-Wl,-soname,libc.so.6", "-Wl,--version-script=" + script},
		{compiler, "-shared", "-nostdlib", "-fPIC", "-o", user, write(t, `extern "C" void later(); void f() { later(); }`, dir, "u.cpp"), libc},
	} {
		output, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, string(output))
	}
	_, err = glibcFloor([]string{user})
	require.ErrorContains(t, err, "needs glibc 2.99")
	require.Positive(t, compareVersions("2.10", "2.9"))
	require.Negative(t, compareVersions("2.34", "2.34.1"))
}

// What calls a library that is left out ends, and says why.
func TestTraps(t *testing.T) {
	p, _ := newProject(t)
	compiler, err := p.compiler(t.Context())
	require.NoError(t, err)
	dir := t.TempDir()
	library := filepath.Join(dir, "libnccl.so.2")
	require.NoError(t, p.compileTrap(t.Context(), compiler, library, trapSource("libnccl.so.2", []string{"ncclAllGather"}), "libnccl.so.2"))
	source := write(t, `extern "C" void ncclAllGather(); int main() { ncclAllGather(); }`, dir, "main.cpp")
	program := filepath.Join(dir, "main")
	output, err := exec.Command(compiler, "-o", program, source, library, "-Wl,-rpath,"+dir).CombinedOutput()
	require.NoError(t, err, string(output))
	output, err = exec.Command(program).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "mlxcel: ncclAllGather was called, of libnccl.so.2, which this release leaves out")
}

// What is signed is what the archive holds and the manifest describes; what was built stays as it is, and files of others
// are not touched.
func TestSign(t *testing.T) {
	p, _ := newProject(t)
	from := t.TempDir()
	program, other := write(t, "program", from, "mlxcel.exe"), write(t, "MLX", from, "mlx.dll")
	b := &bundle{
		flavor: flavor{target: windowsTarget, variant: "cpu"}, version: "1.2.3", texts: map[string][]byte{},
		files: map[string]string{"mlxcel.exe": program, "lib/cpu/mlx.dll": other},
	}
	signer := write(t, "package main\n\nimport \"os\"\n\nfunc main() {\n\tf, _ := os.OpenFile(os.Args[2], os.O_APPEND|os.O_WRONLY, 0)\n"+
		"\t_, _ = f.WriteString(\" signed by \" + os.Args[1])\n\t_ = f.Close()\n}\n", t.TempDir(), "signer.go")
	t.Setenv("MLXCEL_SIGN", "go run "+signer+` "me"`)
	require.NoError(t, p.sign(t.Context(), b, map[string]string{"mlxcel.exe": program}))
	require.NoError(t, p.addManifest(b))
	archive, err := p.writeArchive(t.Context(), b, t.TempDir())
	require.NoError(t, err)
	dir, err := unpackArchive(archive, t.TempDir())
	require.NoError(t, err)
	m, err := readManifest(dir)
	require.NoError(t, err)
	for path, want := range map[string]string{"mlxcel.exe": "program signed by me", "lib/cpu/mlx.dll": "MLX"} {
		have, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		require.NoError(t, err)
		require.Equal(t, want, string(have))
		require.Contains(t, m.Files, manifestItem{path, int64(len(want)), sha([]byte(want))})
	}
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	require.Equal(t, "program", string(text))

	t.Setenv("MLXCEL_SIGN", filepath.Join(from, "none"))
	require.ErrorContains(t, p.sign(t.Context(), b, map[string]string{"mlxcel.exe": program}), "signing mlxcel.exe")
}
