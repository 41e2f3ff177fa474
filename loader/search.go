package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A variant is a folder of a bundle.
type variant struct {
	name, backend, device string
	library               string // the backend library's file in the folder
	cuda                  int    // the CUDA that it is built with, 13000 for 13.0; 0 for the CPU
	driver                string // the oldest NVIDIA driver that serves it
}

// needsMLX reports whether the backend library is linked to MLX.
func (v variant) needsMLX() bool { return v.backend == "mlx" }

// In the order of preference.
var variants = []variant{
	{"cuda13", "mlx", "cuda", shimFile, 13000, "580"},
	{"cuda12", "mlx", "cuda", shimFile, 12000, "550"},
	{"native", "native", "cpu", nativeFile, 0, ""},
	{"cpu", "mlx", "cpu", shimFile, 0, ""},
}

// isForGPU reports whether a variant of that name needs a GPU.
func isForGPU(name string) bool {
	return slices.ContainsFunc(variants, func(v variant) bool { return v.name == name && v.device == "cuda" })
}

// CheckDevice reports a name that Options.Device cannot have.
func CheckDevice(device string) error {
	_, err := deviceKind(device)
	return err
}

// deviceKind is the kind of device that an option names: "auto", "cpu" or "cuda".
func deviceKind(device string) (string, error) {
	number, numbered := strings.CutPrefix(device, "cuda:")
	switch {
	case device == "":
		return "auto", nil
	case device == "auto" || device == "cpu" || device == "cuda":
		return device, nil
	case numbered && isNumber(number), isUUID(device):
		return "cuda", nil
	}
	return "", fmt.Errorf("there is no device %q: want auto, cpu, cuda, cuda:N for one of several GPUs, or a GPU's UUID", device)
}

func isNumber(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 0 && strconv.Itoa(n) == s
}

// suitable returns the variants that options allow.
func suitable(o Options) ([]variant, error) {
	kind, err := deviceKind(o.Device)
	if err != nil {
		return nil, err
	}
	allows := func(option, have string) bool { return option == "" || option == "auto" || option == have }
	var fit []variant
	var all []string
	for _, v := range variants {
		if pair := v.backend + " on " + v.device; !slices.Contains(all, pair) {
			all = append(all, pair)
		}
		if allows(o.Backend, v.backend) && allows(kind, v.device) {
			fit = append(fit, v)
		}
	}
	if len(fit) == 0 {
		return nil, fmt.Errorf("this release has no backend %q for the device %q, only %s",
			orAuto(o.Backend), orAuto(o.Device), strings.Join(all, ", "))
	}
	return fit, nil
}

func orAuto(option string) string {
	if option == "" {
		return "auto"
	}
	return option
}

// folders returns where the folder of variant may be, in order.
func folders(variant, override string, executable func() (string, error)) ([]string, error) {
	if override == "" {
		override = os.Getenv("MLXCEL_BUNDLE")
	}
	if override != "" {
		root, err := filepath.Abs(override)
		if err != nil {
			return nil, err
		}
		dirs := []string{filepath.Join(root, variant), filepath.Join(root, "lib", variant)}
		// The folder of a variant itself has any name, but those for GPUs have their own: their libraries are called alike.
		if name := filepath.Base(root); name == variant || !isForGPU(name) && !isForGPU(variant) {
			dirs = append(dirs, root)
		}
		return dirs, nil
	}
	program, err := executable()
	if err != nil {
		return nil, fmt.Errorf("cannot tell where this program lies: %w", err)
	}
	// On Windows a folder above may be of a kind that cannot be resolved, though programs run from it.
	if target, err := filepath.EvalSymlinks(program); err == nil {
		program = target
	}
	beside := filepath.Dir(program)
	return []string{filepath.Join(beside, "lib", variant), filepath.Join(filepath.Dir(beside), "lib", variant)}, nil
}

// find returns the folder of a variant, "" if its backend library exists nowhere.
func (s *search) find(v variant, override string) (string, error) {
	dirs, err := folders(v.name, override, os.Executable)
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, v.library)
		info, err := os.Stat(path)
		switch {
		case err == nil && info.Mode().IsRegular():
			return dir, nil
		case err == nil:
			s.note(path, "not a file")
		default:
			s.note(path, "%v", reason(err))
		}
	}
	return "", nil
}

// reason is a file error without its path, which stands beside it.
func reason(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
