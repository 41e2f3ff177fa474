package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A variant is a folder of a bundle.
type variant struct {
	name, backend, device string
	library               string // the backend library's file in the folder
}

// needsMLX reports whether the backend library is linked to MLX.
func (v variant) needsMLX() bool { return v.backend == "mlx" }

// In the order of preference.
var variants = []variant{
	{"native", "native", "cpu", nativeFile},
	{"cpu", "mlx", "cpu", shimFile},
}

// suitable returns the variants that options allow.
func suitable(o Options) ([]variant, error) {
	allows := func(option, have string) bool { return option == "" || option == "auto" || option == have }
	var fit []variant
	var all []string
	for _, v := range variants {
		all = append(all, v.backend+" on "+v.device)
		if allows(o.Backend, v.backend) && allows(o.Device, v.device) {
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
		return []string{filepath.Join(root, variant), filepath.Join(root, "lib", variant), root}, nil
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
