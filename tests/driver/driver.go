// Package driver makes driver libraries that stand in for NVIDIA's, with a fault each, for tests of what is said about
// them on machines without a GPU.
package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Fault is what is wrong with a driver, as the driver tells it. The zero Fault has a driver for CUDA 13.0 and one GPU of
// compute capability 8.9.
type Fault struct {
	Name       string
	Version    int // of CUDA, 12040 for 12.4; 0: 13000
	Init       int // what cuInit answers
	NoDevice   bool
	Capability int // 61 for 6.1; 0: 89

	Environment []string // to run programs with
	Code, Says  string   // what is to be told about it: a code of `mlxcel doctor`, and a part of the sentence
}

// Working has no fault.
var Working = Fault{Name: "working"}

// Faults are those that users meet.
var Faults = []Fault{
	{Name: "old", Version: 12040, Code: "driver-old", Says: "the NVIDIA driver serves CUDA up to 12.4, and the libraries are for CUDA 13.0: install driver 580 or newer"},
	{Name: "no GPU", NoDevice: true, Code: "gpu-none", Says: "the NVIDIA driver finds no GPU"},
	{Name: "no GPU at its start", Init: 100, NoDevice: true, Code: "gpu-none", Says: "the NVIDIA driver finds no GPU"},
	{Name: "hidden", Init: 100, NoDevice: true, Environment: []string{"CUDA_VISIBLE_DEVICES="}, Code: "gpu-hidden",
		Says: `CUDA_VISIBLE_DEVICES is "", which leaves no GPU`},
	{Name: "unsupported", Capability: 61, Code: "gpu-unsupported", Says: "the GPU Test GPU has compute capability 6.1, and 7.5 or more is needed"},
	{Name: "datacenter", Capability: 90, Code: "gpu-unsupported"}, // on Windows
	{Name: "does not start", Init: 999, Code: "driver-broken", Says: "the NVIDIA driver does not start (error 999)"},
	{Name: "of two versions", Init: 803, Code: "driver-broken", Says: "the NVIDIA driver's parts are of different versions"},
}

// Build is Compile for a test.
func Build(t testing.TB, goos string, f Fault, dir string) string {
	t.Helper()
	path, err := Compile(goos, f, dir)
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("MLXCEL_TEST_STRICT") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Compile compiles the driver for a system into a folder, under the name that the system knows it by, and returns its path.
func Compile(goos string, f Fault, dir string) (string, error) {
	_, self, _, _ := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(self), "testdata", "driver.c")
	args := []string{"-O1", "-fno-builtin", source, fmt.Sprintf("-DINIT=%d", f.Init)}
	if f.Version != 0 {
		args = append(args, fmt.Sprintf("-DVERSION=%d", f.Version))
	}
	if f.NoDevice {
		args = append(args, "-DDEVICES=0")
	}
	if f.Capability != 0 {
		args = append(args, fmt.Sprintf("-DCAPABILITY=%d", f.Capability))
	}
	if goos == "linux" {
		path := filepath.Join(dir, "libcuda.so.1")
		return path, command([]string{"cc", "gcc", "clang", "clang-19"}, append(args, "-shared", "-fPIC", "-o", path)...)
	}
	path, object := filepath.Join(dir, "nvcuda.dll"), filepath.Join(dir, "driver.obj")
	if err := command([]string{"clang-19", "clang-20", "clang-21", "clang"},
		append(args, "--target=x86_64-pc-windows-msvc", "-fno-stack-protector", "-c", "-o", object)...); err != nil {
		return "", err
	}
	return path, command([]string{"lld-link-19", "lld-link-20", "lld-link-21", "lld-link"},
		"/dll", "/noentry", "/nodefaultlib", "/machine:x64", "/out:"+path, "/implib:"+object+".lib", object)
}

// command runs the first of some programs that there is.
func command(names []string, args ...string) error {
	for _, name := range names {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %q: %w\n%s", program, args, err, out)
		}
		return nil
	}
	return fmt.Errorf("none of %q is installed: %w", names, exec.ErrNotFound)
}
