package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// An audit looks at an unpacked bundle, and writes what it sees.
type audit struct {
	p        *project
	dir      string
	manifest *manifest
	files    map[string]int64 // sizes, by path with slashes
	folders  map[string]bool
	out      io.Writer
	problems []string
}

func (a *audit) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

func (a *audit) note(format string, args ...any) { fmt.Fprintf(a.out, format+"\n", args...) }

// file is the path of a bundle's file in the file system.
func (a *audit) file(path string) string { return filepath.Join(a.dir, filepath.FromSlash(path)) }

// auditCommand is the subcommand audit.
func auditCommand(ctx context.Context, p *project, args []string) error {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		fmt.Fprintln(p.log, "usage: go run ./dist audit ARCHIVE    (a .zip or .tar.zst that dist bundle has made, or the folder of an unpacked one)")
		if len(args) == 1 && (args[0] == "-h" || args[0] == "--help") {
			return flag.ErrHelp
		}
		return errUsage
	}
	release, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	defer release()
	return p.auditArchive(ctx, args[0], os.Stdout)
}

// auditArchive checks an archive or a folder, and writes what it has seen. It returns an error that has all problems.
func (p *project) auditArchive(ctx context.Context, archive string, out io.Writer) error {
	info, err := os.Stat(archive)
	if err != nil {
		return err
	}
	dir := archive
	if !info.IsDir() {
		scratch, err := p.scratch()
		if err != nil {
			return err
		}
		defer os.RemoveAll(scratch)
		if dir, err = unpackArchive(archive, scratch); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %d bytes packed\n", filepath.Base(archive), info.Size())
	}
	return p.auditFolder(ctx, dir, out)
}

func (p *project) auditFolder(ctx context.Context, dir string, out io.Writer) error {
	m, err := readManifest(dir)
	if err != nil {
		return err
	}
	a := &audit{p: p, dir: dir, manifest: m, files: map[string]int64{}, folders: map[string]bool{}, out: out}
	if err := a.list(); err != nil {
		return err
	}
	a.note("mlxcel %s, %s-%s, MLX %s", m.Version, m.Target, m.Variant, m.MLX)
	a.checkManifest()
	a.checkLicenses()
	a.checkParts()
	f, err := findFlavor(m.Target, m.Variant)
	if err != nil {
		return err
	}
	if f.windows() {
		a.checkWindows(f)
	} else {
		a.checkLinux(f)
	}
	if f.cuda != nil {
		if err := a.checkHeaders(ctx, f); err != nil {
			return err
		}
	}
	for _, folder := range f.folders {
		if !a.folders[folder] {
			a.problem("the folder %s is missing, without which MLX ends the process", folder)
		}
	}
	slices.Sort(a.problems)
	if len(a.problems) == 0 {
		a.note("no problem")
		return nil
	}
	for _, problem := range a.problems {
		a.note("PROBLEM: %s", problem)
	}
	return fmt.Errorf("the audit found %d problems: %s", len(a.problems), strings.Join(a.problems, "; "))
}

// list finds all files and folders.
func (a *audit) list() error {
	return filepath.WalkDir(a.dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(a.dir, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(relative)
		switch {
		case entry.IsDir():
			a.folders[name] = true
		case entry.Type().IsRegular():
			info, err := entry.Info()
			if err != nil {
				return err
			}
			a.files[name] = info.Size()
		default:
			a.problem("%s is neither a file nor a folder", name)
		}
		return nil
	})
}

// checkManifest compares the manifest with what is there.
func (a *audit) checkManifest() {
	listed := map[string]bool{manifestFile: true}
	var total int64
	for _, item := range a.manifest.Files {
		listed[item.Path] = true
		size, there := a.files[item.Path]
		if !there {
			a.problem("%s, which the manifest lists, is missing", item.Path)
			continue
		}
		total += size
		if size != item.Size {
			a.problem("%s has %d bytes, and the manifest says %d", item.Path, size, item.Size)
		} else if err := checkHash(a.file(item.Path), item.SHA256); err != nil {
			a.problem("%s differs from the manifest", item.Path)
		}
	}
	lower := map[string]string{}
	for _, name := range sortedKeys(a.files) {
		if !listed[name] {
			a.problem("%s is not in the manifest", name)
		}
		if other, taken := lower[strings.ToLower(name)]; taken {
			a.problem("%s and %s are one file on Windows", other, name)
		}
		lower[strings.ToLower(name)] = name
	}
	a.note("%d files, %d bytes unpacked, all as the manifest says", len(a.files), total)
}

// checkLicenses checks that each component has its terms in the bundle, and that no licence is there for nothing.
func (a *audit) checkLicenses() {
	wanted := map[string]bool{}
	for _, c := range a.manifest.Components {
		if len(c.Licenses) == 0 {
			a.problem("the component %s has no licence", c.Name)
		}
		for _, license := range c.Licenses {
			wanted[license] = true
			if a.files[license] < 100 {
				a.problem("the licence %s of %s is missing or empty", license, c.Name)
			}
		}
	}
	for _, name := range sortedKeys(a.files) {
		if strings.HasPrefix(name, "licenses/") && !wanted[name] {
			a.problem("%s is of no component", name)
		}
	}
	a.note("%d components, each with its licence", len(a.manifest.Components))
}

// checkLinux checks the libraries of a bundle for Linux.
func (a *audit) checkLinux(f flavor) {
	used := map[string]bool{"mlxcel": true, "mlxcel-server": true}
	var libraries []string
	for _, name := range sortedKeys(a.files) {
		if isSharedObject(name) {
			libraries = append(libraries, name)
		}
	}
	for _, library := range libraries {
		base := path.Base(library)
		root := base == libraryFile(shim, linuxTarget) || base == libraryFile(native, linuxTarget)
		if !root && openedBy(base) == nil {
			continue
		}
		if opener := openedBy(base); opener != nil {
			beside := path.Join(path.Dir(library), opener.by[0])
			if !mentions(a.file(beside), opener.text(base)) {
				a.problem("%s should be opened by %s, which does not name it", library, opener.by[0])
			}
		}
		closure, err := checkClosure(a.file(path.Join("lib", strings.Split(library, "/")[1])), relativeIn(library))
		if err != nil {
			a.problem("%v", err)
			continue
		}
		for name := range closure {
			used[path.Join("lib", strings.Split(library, "/")[1], name)] = true
		}
		a.note("%s: %d libraries with what it needs", library, len(closure))
	}
	for _, library := range libraries {
		if !used[library] {
			a.problem("nothing refers to %s", library)
		}
	}
	var files []string
	for _, library := range libraries {
		files = append(files, a.file(library))
	}
	floor, err := glibcFloor(files)
	switch {
	case err != nil:
		a.problem("%v", err)
	case floor != a.manifest.Glibc:
		a.problem("the libraries need glibc %s, and the manifest says %q", floor, a.manifest.Glibc)
	default:
		a.note("glibc %s and newer", floor)
	}
	a.checkGPUs(f, "lib/%s/mlx/lib/libmlx.so")
}

// relativeIn is a library's path in the folder of its variant.
func relativeIn(library string) string {
	parts := strings.SplitN(library, "/", 3)
	return filepath.FromSlash(parts[2])
}

func (a *audit) checkGPUs(f flavor, pattern string) {
	if f.cuda == nil {
		return
	}
	gpus, err := gpuArchitectures(a.file(fmt.Sprintf(pattern, f.cuda.name)))
	switch {
	case err != nil:
		a.problem("%v", err)
	case !slices.Equal(gpus, a.manifest.GPUs):
		a.problem("MLX has code for %v, and the manifest says %v", gpus, a.manifest.GPUs)
	default:
		a.note("code for GPUs of the compute capabilities %s", strings.Join(gpus, ", "))
	}
}
