package main

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fakePE describes a program or library for Windows.
type fakePE struct {
	machine          uint16
	flags            uint16
	imports, delayed []string
	gpuCode          []byte
	text             string // stands somewhere in the file
	subsystem        uint16
}

const safeFlags = pe.IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE | pe.IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA | pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT

func goodPE(imports ...string) fakePE {
	return fakePE{machine: pe.IMAGE_FILE_MACHINE_AMD64, flags: safeFlags, imports: imports, subsystem: pe.IMAGE_SUBSYSTEM_WINDOWS_CUI}
}

// encode writes the file: headers, a section with the tables of imports, and one with code for GPUs.
func (f fakePE) encode() []byte {
	const base = 0x1000 // address of the first section
	var data, tables, names bytes.Buffer
	tableSize := 20*(len(f.imports)+1) + 32*(len(f.delayed)+1)
	for _, list := range []struct {
		names      []string
		size, name int
	}{{f.imports, 20, 12}, {f.delayed, 32, 4}} {
		for _, name := range list.names {
			d := make([]byte, list.size)
			binary.LittleEndian.PutUint32(d[list.name:], uint32(base+tableSize+names.Len()))
			d[0] = 1
			tables.Write(d)
			names.WriteString(name + "\x00")
		}
		tables.Write(make([]byte, list.size))
	}
	data.Write(tables.Bytes())
	data.Write(names.Bytes())
	data.WriteString(f.text)

	sections := []pe.SectionHeader32{{Name: [8]byte{'.', 'r', 'd', 'a', 't', 'a'}, VirtualSize: uint32(data.Len()), VirtualAddress: base, SizeOfRawData: uint32(data.Len())}}
	if f.gpuCode != nil {
		sections = append(sections, pe.SectionHeader32{Name: [8]byte{'.', 'n', 'v', '_', 'f', 'a', 't', 'b'}, VirtualSize: uint32(len(f.gpuCode)), VirtualAddress: 0x100000, SizeOfRawData: uint32(len(f.gpuCode))})
	}
	optional := pe.OptionalHeader64{Magic: 0x20b, Subsystem: f.subsystem, DllCharacteristics: f.flags, NumberOfRvaAndSizes: 16}
	optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_IMPORT].VirtualAddress = base
	if len(f.delayed) > 0 {
		optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_DELAY_IMPORT].VirtualAddress = uint32(base + 20*(len(f.imports)+1))
	}
	var out bytes.Buffer
	dos := make([]byte, 0x80)
	copy(dos, "MZ")
	dos[0x3c] = 0x80
	out.Write(dos)
	out.WriteString("PE\x00\x00")
	header := pe.FileHeader{Machine: f.machine, NumberOfSections: uint16(len(sections)), SizeOfOptionalHeader: uint16(binary.Size(optional))}
	offset := out.Len() + binary.Size(header) + binary.Size(optional) + len(sections)*40
	for i := range sections {
		sections[i].PointerToRawData = uint32(offset)
		offset += int(sections[i].SizeOfRawData)
	}
	for _, part := range []any{header, optional, sections} {
		binary.Write(&out, binary.LittleEndian, part)
	}
	out.Write(data.Bytes())
	out.Write(f.gpuCode)
	return out.Bytes()
}

// gpuCode is what a library has for the given capabilities.
func gpuCode(capabilities ...uint32) []byte {
	var entries bytes.Buffer
	for _, c := range capabilities {
		e := make([]byte, 64+8)
		binary.LittleEndian.PutUint16(e, 2)
		binary.LittleEndian.PutUint32(e[4:], 64)
		binary.LittleEndian.PutUint64(e[8:], 8)
		binary.LittleEndian.PutUint32(e[28:], c)
		entries.Write(e)
	}
	header := make([]byte, 16)
	copy(header, fatMagic)
	binary.LittleEndian.PutUint16(header[6:], 16)
	binary.LittleEndian.PutUint64(header[8:], uint64(entries.Len()))
	return append(append(make([]byte, 24), header...), entries.Bytes()...)
}

// fakeRelease is the content of a bundle for Windows with a GPU, by path.
func fakeRelease() map[string][]byte {
	license := []byte(strings.Repeat("You may. ", 20))
	kernels := "#include \"mlx/own.cuh\"\n#include <cuda/atomic>\n#include <cuda_fp16.h>\n"
	mlx := goodPE("kernel32.dll", "libopenblas.dll", "msvcp140.dll")
	gpu := mlx
	gpu.delayed, gpu.gpuCode, gpu.text = []string{"cublasLt64_13.dll", "nvrtc64_130_0.dll", "cudnn64_9.dll", "cufft64_12.dll"}, gpuCode(75, 80, 120), kernels+"class fmt@@"
	nvrtc := goodPE("kernel32.dll")
	nvrtc.text = "nvrtc-builtins64_130.dll"
	shim := goodPE("mlx.dll", "msvcp140.dll", "api-ms-win-crt-heap-l1-1-0.dll")
	files := map[string][]byte{
		"lib/nvidia/cu13/include/cuda_runtime_api.h": []byte("#define CUDART_VERSION  13000\n"),
		"lib/nvidia/cu13/include/cuda_fp16.h":        []byte("#include \"crt/mma.h\"\n#include \"target\"\n"),
		"lib/nvidia/cu13/include/crt/mma.h":          []byte("#if CUDART_VERSION != __CUDACC_VER_MAJOR__ * 1000\n#error versions\n#endif\n"),
		"lib/cuda13/include/cccl/cuda/atomic":        []byte("#if __CUDA_ARCH__ >= 900\n#include <cuda/__new>\n#endif\n"),
		"lib/cuda13/include/cccl/cuda/__new":         []byte("int x;\n"),
		"licenses/mlx/LICENSE":                       license,
		"licenses/mlx-cuda-13/fmt.txt":               license,
		"licenses/mlxcel/LICENSE":                    license,
	}
	for path, image := range map[string]fakePE{
		"mlxcel.exe":                                         goodPE("kernel32.dll"),
		"mlxcel-server.exe":                                  goodPE("kernel32.dll"),
		"lib/native/mlxnative.dll":                           goodPE("msvcp140.dll"),
		"lib/cpu/mlxshim.dll":                                shim,
		"lib/cpu/mlx.dll":                                    mlx,
		"lib/cuda13/mlxshim.dll":                             shim,
		"lib/cuda13/mlx.dll":                                 gpu,
		"lib/common/msvcp140.dll":                            goodPE("kernel32.dll"),
		"lib/common/libopenblas.dll":                         {machine: pe.IMAGE_FILE_MACHINE_AMD64, imports: []string{"KERNEL32.dll", "msvcrt.dll"}},
		"lib/nvidia/cublas/bin/cublasLt64_13.dll":            goodPE("kernel32.dll"),
		"lib/nvidia/cuda_nvrtc/bin/nvrtc64_130_0.dll":        nvrtc,
		"lib/nvidia/cuda_nvrtc/bin/nvrtc-builtins64_130.dll": goodPE(),
	} {
		files[path] = image.encode()
	}
	return files
}

// auditOf packs files with a manifest that fits them, changes the unpacked folder, and returns the audit's error.
func auditOf(t *testing.T, files map[string][]byte, change func(dir string, m *manifest)) (string, error) {
	t.Helper()
	p, _ := newProject(t)
	f, err := findFlavor(windowsTarget, "cuda13")
	require.NoError(t, err)
	m := &manifest{Name: "mlxcel", Version: "1.2.3", Target: f.target, Variant: f.variant, MLX: "0.1", Driver: "580", GPUs: []string{"7.5", "8.0", "12.0"},
		Components: []component{{Name: "mlx", Licenses: []string{"licenses/mlx/LICENSE"}}, {Name: "mlxcel", Licenses: []string{"licenses/mlxcel/LICENSE"}},
			{Name: "mlx-cuda-13", SHA256: "of a wheel", Licenses: []string{"licenses/mlx-cuda-13/fmt.txt"}}}}
	dir := filepath.Join(t.TempDir(), "mlxcel-1.2.3-windows-amd64-cuda13")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "lib", "nvidia", "cudnn", "bin"), 0o755))
	for path, content := range files {
		write(t, string(content), dir, filepath.FromSlash(path))
		m.Files = append(m.Files, manifestItem{path, int64(len(content)), sha(content)})
	}
	if change != nil {
		change(dir, m)
	}
	text, err := json.Marshal(m)
	require.NoError(t, err)
	write(t, string(text), dir, manifestFile)
	var out bytes.Buffer
	err = p.auditArchive(t.Context(), dir, &out)
	return out.String(), err
}

func TestAuditOfAGoodBundle(t *testing.T) {
	out, err := auditOf(t, fakeRelease(), nil)
	require.NoError(t, err, out)
	require.Contains(t, out, "\nno problem\n")
	require.Regexp(t, `when called +lib/nvidia/cublas/bin/cublasLt64_13.dll`, out)
	require.Regexp(t, `by name +lib/nvidia/cuda_nvrtc/bin/nvrtc-builtins64_130.dll`, out)
	require.Regexp(t, `when called +cudnn64_9.dll, left out`, out)
	require.Contains(t, out, "capabilities 7.5, 8.0, 12.0\n")
	require.Contains(t, out, "2 headers that MLX names")
}

func TestAuditFindsWhatIsWrong(t *testing.T) {
	const cpuMLX, gpuMLX = "lib/cpu/mlx.dll", "lib/cuda13/mlx.dll"
	// With the file's own manifest, so that each is found by itself.
	set := func(path string, image fakePE) func(map[string][]byte) {
		return func(files map[string][]byte) { files[path] = image.encode() }
	}
	remove := func(path string) func(map[string][]byte) {
		return func(files map[string][]byte) { delete(files, path) }
	}
	unsafe := func(bit uint16) fakePE {
		image := goodPE("kernel32.dll")
		image.flags &^= bit
		return image
	}
	late := goodPE("mlx.dll")
	late.delayed = []string{"dbgcore9.dll"}
	nameless := goodPE("kernel32.dll")
	nameless.text = "other"
	foreign := goodPE("kernel32.dll")
	foreign.machine = pe.IMAGE_FILE_MACHINE_ARM64
	window := goodPE("kernel32.dll")
	window.subsystem = pe.IMAGE_SUBSYSTEM_WINDOWS_GUI
	mixed := goodPE("libopenblas.dll")
	mixed.gpuCode, mixed.text = gpuCode(75, 80, 120), "#include <cuda/atomic>fmt@@ NVTX_INJECTION64_PATH"
	dull := goodPE("libopenblas.dll")
	dull.gpuCode, dull.text = gpuCode(80), "#include <cuda/atomic>"
	for name, c := range map[string]struct {
		change func(map[string][]byte)
		want   string
	}{
		"missing DLL":         {remove("lib/common/msvcp140.dll"), "lib/native/mlxnative.dll needs msvcp140.dll, which is neither in the bundle"},
		"missing delayed DLL": {remove("lib/nvidia/cublas/bin/cublasLt64_13.dll"), "needs cublaslt64_13.dll"},
		"unknown delayed DLL": {set("lib/cuda13/mlxshim.dll", late), "needs dbgcore9.dll"},
		"nothing needs it":    {set("lib/common/concrt140.dll", goodPE()), "nothing refers to lib/common/concrt140.dll"},
		"opened by nobody":    {set("lib/nvidia/cuda_nvrtc/bin/nvrtc64_130_0.dll", nameless), "nothing refers to lib/nvidia/cuda_nvrtc/bin/nvrtc-builtins64_130.dll"},
		"two of one name":     {set("lib/common/mlx.dll", goodPE()), "lib/common/mlx.dll and lib/cpu/mlx.dll have one name"},
		"another machine":     {set(cpuMLX, foreign), "lib/cpu/mlx.dll is for the machine 0xaa64"},
		"debug runtime":       {set(cpuMLX, goodPE("ucrtbased.dll", "libopenblas.dll")), "lib/cpu/mlx.dll needs ucrtbased.dll, of Microsoft's debug runtime"},
		"no ASLR":             {set("mlxcel.exe", unsafe(pe.IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE)), "mlxcel.exe lacks ASLR"},
		"no 64-bit ASLR":      {set("lib/native/mlxnative.dll", unsafe(pe.IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA)), "lib/native/mlxnative.dll lacks 64-bit ASLR"},
		"no DEP":              {set("mlxcel-server.exe", unsafe(pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT)), "mlxcel-server.exe lacks DEP"},
		"damaged":             {func(files map[string][]byte) { files[cpuMLX] = files[cpuMLX][:100] }, "mlx.dll is no program or library"},
		"header of a header":  {remove("lib/nvidia/cu13/include/crt/mma.h"), "crt/mma.h: No such file"},
		"header of new GPUs":  {remove("lib/cuda13/include/cccl/cuda/__new"), "compute capability 900: lib/cuda13/include/cccl/cuda/atomic"},
		"named header":        {remove("lib/nvidia/cu13/include/cuda_fp16.h"), "cuda_fp16.h: No such file"},
		"no console":          {set("mlxcel.exe", window), "mlxcel.exe is not a program for the console"},
		"another part":        {set(gpuMLX, mixed), "nvtx is compiled into a library of mlx-cuda-13, and its terms are not beside it"},
		"a part less":         {set(gpuMLX, dull), "the terms of fmt are there, and no library of mlx-cuda-13 contains it"},
		"other GPUs":          {set(gpuMLX, dull), "MLX has code for [8.0], and the manifest says [7.5 8.0 12.0]"},
	} {
		t.Run(name, func(t *testing.T) {
			files := fakeRelease()
			c.change(files)
			out, err := auditOf(t, files, nil)
			require.ErrorContains(t, err, c.want, out)
			require.Contains(t, out, "PROBLEM")
		})
	}
}

// What was changed after the archive was made.
func TestAuditFindsTampering(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string, m *manifest)
		want   string
	}{
		"changed": {func(t *testing.T, dir string, m *manifest) {
			file := filepath.Join(dir, "lib", "cpu", "mlx.dll")
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			data[len(data)-1] ^= 1
			require.NoError(t, os.WriteFile(file, data, 0o644))
		}, "lib/cpu/mlx.dll differs from the manifest"},
		"cut short": {func(t *testing.T, dir string, m *manifest) {
			require.NoError(t, os.Truncate(filepath.Join(dir, "licenses", "mlx", "LICENSE"), 150))
		}, "licenses/mlx/LICENSE has 150 bytes, and the manifest says 180"},
		"missing": {func(t *testing.T, dir string, m *manifest) {
			require.NoError(t, os.Remove(filepath.Join(dir, "lib", "cuda13", "include", "cccl", "cuda", "atomic")))
		}, "which the manifest lists, is missing"},
		"added":           {func(t *testing.T, dir string, m *manifest) { write(t, "x", dir, "lib", "version.txt") }, "lib/version.txt is not in the manifest"},
		"licence missing": {func(t *testing.T, dir string, m *manifest) { m.Components[0].Licenses[0] = "licenses/mlx/OTHER" }, "the licence licenses/mlx/OTHER of mlx is missing"},
		"no licence":      {func(t *testing.T, dir string, m *manifest) { m.Components[1].Licenses = nil }, "the component mlxcel has no licence"},
		"terms of a part": {func(t *testing.T, dir string, m *manifest) {
			m.Components[2].Licenses = []string{"licenses/mlx/LICENSE"}
		},
			"fmt is compiled into a library of mlx-cuda-13"},
		"licence of nobody": {func(t *testing.T, dir string, m *manifest) { m.Components = slices.Delete(m.Components, 1, 2) }, "licenses/mlxcel/LICENSE is of no component"},
		"cuDNN's empty folder": {func(t *testing.T, dir string, m *manifest) {
			require.NoError(t, os.Remove(filepath.Join(dir, "lib", "nvidia", "cudnn", "bin")))
		}, "the folder lib/nvidia/cudnn/bin is missing"},
		"a link": {func(t *testing.T, dir string, m *manifest) {
			require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "lib", "link")))
		}, "lib/link is neither a file nor a folder"},
		"capitals":        {func(t *testing.T, dir string, m *manifest) { write(t, "x", dir, "MLXCEL.exe") }, "MLXCEL.exe and mlxcel.exe are one file on Windows"},
		"unknown variant": {func(t *testing.T, dir string, m *manifest) { m.Variant = "cuda14" }, "no bundle of the variant"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := auditOf(t, fakeRelease(), func(dir string, m *manifest) { c.change(t, dir, m) })
			require.ErrorContains(t, err, c.want, out)
		})
	}
}

func TestMentions(t *testing.T) {
	// Across the border of the pieces in which a file is read.
	file := write(t, strings.Repeat("x", 1<<20-3)+"NVRTC-builtins", t.TempDir(), "a")
	require.True(t, mentions(file, "nvrtc-Builtins"))
	require.False(t, mentions(file, "cudnn"))
	require.True(t, mentions(write(t, "..n\x00v\x00r\x00t\x00c\x00", t.TempDir(), "wide"), "nvrtc"))
	require.False(t, mentions(filepath.Join(t.TempDir(), "none"), "x"))
}

func TestBrokenTables(t *testing.T) {
	good := goodPE("kernel32.dll").encode()
	at := bytes.Index(good, []byte("kernel32.dll"))
	for _, damage := range []func([]byte){
		func(b []byte) { b[0x80] = 'X' },                                       // no PE
		func(b []byte) { copy(b[at-60:], bytes.Repeat([]byte{0xff}, 60)) },     // a table without an end
		func(b []byte) { binary.LittleEndian.PutUint32(b[at-60:], 0xfffffff) }, // what it points to
	} {
		bad := bytes.Clone(good)
		damage(bad)
		_, err := readPE(write(t, string(bad), t.TempDir(), "x.dll"))
		require.Error(t, err)
	}
}
