package main

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// systemLibraries may be taken from the system: glibc and the compiler's own
// libraries, as for every manylinux wheel.
var systemLibraries = []string{
	"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
	"libstdc++.so.6", "libgcc_s.so.1",
}

// checkClosure checks that the library at the relative path finds every library
// that it and they need inside dir, by their own relative search paths, or
// among the system's.
func checkClosure(dir, library string) error {
	queue, seen := []string{filepath.Join(dir, library)}, map[string]bool{}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		needed, search, err := dynamicSection(path)
		if err != nil {
			return err
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
				return fmt.Errorf("%s finds %s at %s, outside the bundle", path, name, found)
			case found != "":
				queue = append(queue, found)
			case !slices.Contains(systemLibraries, name):
				return fmt.Errorf("%s needs %s, which its search path %q does not hold", path, name, search)
			}
		}
	}
	return nil
}

// dynamicSection returns the names of the libraries that an ELF file needs and
// the folders where it looks for them.
func dynamicSection(path string) (needed, search []string, err error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	defer file.Close()
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
