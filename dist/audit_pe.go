package main

import (
	"bytes"
	"debug/pe"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf16"
)

// windowsLibraries are DLLs of Windows 10 itself.
var windowsLibraries = []string{
	"advapi32.dll", "bcrypt.dll", "dbghelp.dll", "dxgi.dll", "gdi32.dll", "kernel32.dll", "msvcrt.dll", "ntdll.dll", "ole32.dll", "oleaut32.dll",
	"setupapi.dll", "shell32.dll", "shlwapi.dll", "ucrtbase.dll", "user32.dll", "userenv.dll", "version.dll", "ws2_32.dll",
}

// driverLibraries come with the NVIDIA driver.
var driverLibraries = []string{"nvcuda.dll", "nvml.dll"}

// An opener is why a library is in a bundle that is linked to none.
type opener struct {
	name string   // pattern
	by   []string // the libraries that open it by name, first the usual one
	// short is how they name it where they make the rest of the name.
	short string
}

// openers are all libraries that are opened by name. Everything else must be imported by something.
var openers = []opener{
	{name: "nvrtc-builtins64_*.dll", by: []string{"nvrtc64_130_0.dll", "nvrtc64_120_0.dll"}},
	{name: "nvjitlink_1?0_0.dll", by: []string{"cusparse64_12.dll", "cufft64_12.dll", "cufft64_11.dll"}, short: "nvJitLink"},
	{name: "cudnn_*64_9.dll", by: []string{"cudnn64_9.dll", "cudnn_graph64_9.dll"}},
	{name: "libnvrtc-builtins.so.*", by: []string{"libnvrtc.so.13"}},
}

func openedBy(name string) *opener {
	for i, o := range openers {
		if match, err := path.Match(o.name, strings.ToLower(name)); err == nil && match {
			return &openers[i]
		}
	}
	return nil
}

func (o *opener) text(name string) string {
	if o.short != "" {
		return o.short
	}
	return strings.TrimSuffix(name, ".dll")
}

// mentions says whether a text stands in a file, in one byte a letter or two, in capitals or not.
func mentions(file, text string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	text = strings.ToLower(text)
	var wide []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		wide = append(wide, byte(unit), byte(unit>>8))
	}
	const piece = 1 << 20
	overlap := len(wide)
	buffer := make([]byte, 0, piece+overlap)
	for {
		n, err := io.ReadFull(f, buffer[len(buffer):len(buffer)+piece])
		buffer = buffer[:len(buffer)+n]
		lower := bytes.ToLower(buffer)
		if bytes.Contains(lower, []byte(text)) || bytes.Contains(lower, wide) {
			return true
		}
		if err != nil {
			return false
		}
		keep := copy(buffer, buffer[len(buffer)-overlap:])
		buffer = buffer[:keep]
	}
}

// checkWindows checks the programs and libraries of a bundle for Windows.
func (a *audit) checkWindows(f flavor) {
	images := map[string]*peImage{}
	for _, name := range sortedKeys(a.files) {
		switch strings.ToLower(path.Ext(name)) {
		case ".exe", ".dll":
		default:
			continue
		}
		image, err := readPE(a.file(name))
		if err != nil {
			a.problem("%v", err)
			continue
		}
		images[name] = image
		if image.machine != pe.IMAGE_FILE_MACHINE_AMD64 {
			a.problem("%s is for the machine %#x, not for x86-64", name, image.machine)
		}
	}
	used := map[string]bool{}
	for _, entry := range a.variants() {
		a.checkVariant(entry, images, used)
	}
	for _, name := range sortedKeys(images) {
		if !used[name] {
			a.problem("nothing refers to %s", name)
		}
		if ours(name) {
			a.checkOwnFlags(name, images[name])
		}
		for _, dll := range slices.Concat(images[name].imports, images[name].delayed) {
			if isDebugRuntime(dll) {
				a.problem("%s needs %s, of Microsoft's debug runtime", name, dll)
			}
		}
	}
	a.checkGPUs(f, "lib/%s/mlx.dll")
}

// variants are the folders in lib that have a library of ours.
func (a *audit) variants() []string {
	var all []string
	for _, name := range sortedKeys(a.files) {
		if ours(name) && strings.HasPrefix(name, "lib/") {
			all = append(all, path.Dir(name))
		}
	}
	return all
}

func ours(name string) bool {
	switch base := path.Base(name); base {
	case "mlxcel.exe", "mlxcel-server.exe":
		return base == name
	default:
		return base == libraryFile(shim, windowsTarget) || base == libraryFile(native, windowsTarget)
	}
}

// checkVariant follows the imports in the folders where a process looks that has opened the library of one variant: that
// of the programs, the variant's, lib/common and those of NVIDIA's libraries.
func (a *audit) checkVariant(variant string, images map[string]*peImage, used map[string]bool) {
	found := map[string]string{}
	var queue []string
	for _, name := range sortedKeys(images) {
		folder := path.Dir(name)
		nvidia, _ := path.Match("lib/nvidia/*/bin", folder)
		if folder != "." && folder != variant && folder != "lib/common" && !nvidia {
			continue
		}
		base := strings.ToLower(path.Base(name))
		if other, taken := found[base]; taken {
			a.problem("%s and %s have one name, and a process looks in the folders of both", other, name)
		}
		found[base] = name
		if ours(name) {
			queue = append(queue, name)
		}
	}
	seen := map[string]bool{}
	a.note("")
	a.note("%s", variant)
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		if seen[name] {
			continue
		}
		seen[name], used[name] = true, true
		image := images[name]
		a.note("  %-48s %12d bytes", name, a.files[name])
		for _, list := range []struct {
			kind string
			dlls []string
		}{{"imports", image.imports}, {"when called", image.delayed}} {
			var system []string
			for _, dll := range list.dlls {
				switch {
				case found[dll] != "":
					a.note("    %-11s %s", list.kind, found[dll])
					queue = append(queue, found[dll])
				case slices.Contains(windowsLibraries, dll) || strings.HasPrefix(dll, "api-ms-win-") || strings.HasPrefix(dll, "ext-ms-win-"):
					system = append(system, strings.TrimSuffix(dll, ".dll"))
				case slices.Contains(driverLibraries, dll):
					a.note("    %-11s %s, of the NVIDIA driver", list.kind, dll)
				case list.kind == "when called" && a.refused(dll):
					a.note("    %-11s %s, left out: nothing that a model records calls it", list.kind, dll)
				default:
					a.problem("%s needs %s, which is neither in the bundle nor a part of Windows", name, dll)
				}
			}
			if len(system) > 0 {
				a.note("    %-11s %s", list.kind, strings.Join(shorten(system), " "))
			}
		}
		for _, base := range sortedKeys(found) {
			o := openedBy(base)
			if o == nil || seen[found[base]] || !slices.Contains(o.by, strings.ToLower(path.Base(name))) {
				continue
			}
			if !mentions(a.file(name), o.text(base)) {
				continue
			}
			a.note("    %-11s %s", "by name", found[base])
			queue = append(queue, found[base])
		}
	}
}

// leftOutWindows are what the slim bundle lacks: none of the operations that a model can record calls them.
var leftOutWindows = []string{"cudnn64_9.dll", "cufft64_12.dll", "cusolver64_12.dll"}

func (a *audit) refused(dll string) bool {
	return a.manifest.Variant == "cuda13" && slices.Contains(leftOutWindows, dll)
}

// shorten joins the names of API sets.
func shorten(names []string) []string {
	var short []string
	sets := 0
	for _, name := range names {
		if strings.HasPrefix(name, "api-ms-win-") {
			sets++
			continue
		}
		short = append(short, name)
	}
	slices.Sort(short)
	if sets > 0 {
		short = append(short, "api-ms-win-*")
	}
	return short
}

func isDebugRuntime(dll string) bool {
	debug := []string{"ucrtbased.dll", "msvcp140d.dll", "vcruntime140d.dll", "vcruntime140_1d.dll", "msvcp140_atomic_waitd.dll", "concrt140d.dll", "msvcrtd.dll"}
	return slices.Contains(debug, dll)
}

// checkOwnFlags checks what makes an attacker's life harder, and that programs write to the console.
func (a *audit) checkOwnFlags(name string, image *peImage) {
	for _, flag := range []struct {
		bit  uint16
		name string
	}{
		{pe.IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE, "ASLR (DYNAMIC_BASE)"},
		{pe.IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA, "64-bit ASLR (HIGH_ENTROPY_VA)"},
		{pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT, "DEP (NX_COMPAT)"},
	} {
		if image.flags&flag.bit == 0 {
			a.problem("%s lacks %s", name, flag.name)
		}
	}
	if strings.HasSuffix(name, ".exe") && !image.console {
		a.problem("%s is not a program for the console", name)
	}
}
