package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// systemLibraries may be taken from the system: glibc and the compiler's own
// libraries, as for every manylinux wheel, and the NVIDIA driver.
var systemLibraries = []string{
	"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
	"libstdc++.so.6", "libgcc_s.so.1", "libcuda.so.1",
}

// checkClosure checks that the library at the relative path finds every library
// that it and they need inside dir, by their own search paths, which are relative
// to themselves, or among the system's. It returns all that are needed, from dir.
func checkClosure(dir, library string) (used map[string]bool, err error) {
	queue := []string{filepath.Join(dir, library)}
	used = map[string]bool{}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return nil, err
		}
		if used[filepath.ToSlash(relative)] {
			continue
		}
		used[filepath.ToSlash(relative)] = true
		needed, search, err := dynamicSection(path)
		if err != nil {
			return nil, err
		}
		for _, name := range needed {
			found := ""
			for _, folder := range search {
				if candidate := filepath.Join(folder, name); exists(candidate) {
					found = candidate
					break
				}
			}
			switch {
			case found != "" && !within(dir, found):
				return nil, fmt.Errorf("%s finds %s at %s, outside the bundle", path, name, found)
			case found != "":
				queue = append(queue, found)
			case !slices.Contains(systemLibraries, name):
				return nil, fmt.Errorf("%s needs %s, which its search path %q does not hold", path, name, search)
			}
		}
	}
	return used, nil
}

// dynamicSection returns the names of the libraries that an ELF file needs and
// the folders where it looks for them, none of which may be fixed.
func dynamicSection(path string) (needed, search []string, err error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	defer file.Close()
	if file.Machine != elf.EM_X86_64 {
		return nil, nil, fmt.Errorf("%s is for %v, not for x86-64", path, file.Machine)
	}
	if needed, err = file.ImportedLibraries(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	// The loader ignores DT_RPATH where there is a DT_RUNPATH.
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		entries, err := file.DynString(tag)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, entry := range entries {
			for _, folder := range strings.Split(entry, ":") {
				if !strings.HasPrefix(folder, "$ORIGIN") && !strings.HasPrefix(folder, "${ORIGIN}") {
					return nil, nil, fmt.Errorf("%s searches libraries in %q, which is not relative to itself", path, folder)
				}
				origin := strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path))
				search = append(search, filepath.Clean(origin.Replace(folder)))
			}
		}
		if len(entries) > 0 {
			break
		}
	}
	return needed, search, nil
}

func within(dir, path string) bool {
	relative, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(relative)
}

// Bundles for Linux run with these versions and newer ones: Debian 12, Ubuntu
// 22.04. MLX's wheels need the first, and have the C++ library of GCC 11 or 12.
const (
	glibcMost   = "2.35"
	cxxMost     = "3.4.30"
	glibcPrefix = "GLIBC_"
	cxxPrefix   = "GLIBCXX_"
)

// glibcFloor returns the oldest glibc that has all that the libraries need, such
// as "2.35". More than glibcMost or cxxMost is an error.
func glibcFloor(libraries []string) (string, error) {
	floor := "2.2.5" // the first for x86-64
	for _, path := range libraries {
		file, err := elf.Open(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if file.SectionByType(elf.SHT_GNU_VERNEED) == nil {
			file.Close()
			continue // it needs nothing of a certain version
		}
		needs, err := file.DynamicVersionNeeds()
		file.Close()
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		for _, need := range needs {
			for _, n := range need.Needs {
				if version, ok := strings.CutPrefix(n.Dep, glibcPrefix); ok {
					if compareVersions(version, glibcMost) > 0 {
						return "", fmt.Errorf("%s needs glibc %s, and bundles have to run with %s", path, version, glibcMost)
					}
					if compareVersions(version, floor) > 0 {
						floor = version
					}
				}
				if version, ok := strings.CutPrefix(n.Dep, cxxPrefix); ok && compareVersions(version, cxxMost) > 0 {
					return "", fmt.Errorf("%s needs a libstdc++ with %s%s, and bundles have to run with %s", path, cxxPrefix, version, cxxMost)
				}
			}
		}
	}
	return floor, nil
}

// compareVersions compares dotted numbers.
func compareVersions(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(x), len(y)) {
		if c := cmp.Compare(number(x, i), number(y, i)); c != 0 {
			return c
		}
	}
	return 0
}

func number(parts []string, i int) int {
	if i >= len(parts) {
		return 0
	}
	n, err := strconv.Atoi(parts[i])
	if err != nil {
		return -1 // such as GLIBC_PRIVATE: never a floor
	}
	return n
}
