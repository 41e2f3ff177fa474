package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// LLVM returns the path of one of LLVM's programs ("clang-cl", "lld-link", …),
// with which dist builds for Windows. Microsoft's C++ library wants Clang 19 or
// newer.
func LLVM(name string) (string, error) {
	for _, candidate := range []string{name, name + "-19", name + "-20", name + "-21"} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s on PATH, which builds for Windows", name)
}

// CompileDLL makes a DLL for Windows, without a C runtime, from a C file, with the
// headers and import libraries that `go run ./dist setup --windows` has put into
// the cache. The further arguments are the linker's: import libraries, /entry:NAME
// (without it the DLL runs nothing when it is loaded) and others.
func CompileDLL(source, target string, linker ...string) error {
	compiler, err := LLVM("clang-cl")
	if err != nil {
		return err
	}
	link, err := LLVM("lld-link")
	if err != nil {
		return err
	}
	headers, err := filepath.Glob(filepath.Join(CacheDir(), "msvc", "*", "VC"))
	if err != nil || len(headers) == 0 {
		return errors.New("the cache has no headers of Microsoft's: " + windowsRemedy)
	}
	root := filepath.Dir(headers[len(headers)-1])
	dir, err := os.MkdirTemp("", "dll")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	object := filepath.Join(dir, "dll.obj")
	entry := "/noentry"
	for _, argument := range linker {
		if len(argument) > 7 && argument[:7] == "/entry:" {
			entry = argument
		}
	}
	for _, command := range [][]string{
		{compiler, "--target=x86_64-pc-windows-msvc", "/winsysroot", root, "/O2", "/GS-", "/c", source, "/Fo" + object},
		append([]string{link, "/dll", entry, "/nodefaultlib", "/machine:x64", "/out:" + target, "/implib:" + filepath.Join(dir, "dll.lib"),
			"/winsysroot:" + root, object}, linker...),
	} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s cannot be made from %s: %w\n%s", target, source, err, output)
		}
	}
	return nil
}
