package hub

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkPath reports a file name of a server that is not harmless as a relative path on every system: one that leaves the
// folder, means a drive, stream or device on Windows, or hides among what git and this cache keep for themselves.
func checkPath(path string) error {
	bad := func(why string) error { return fmt.Errorf("the file name %q is not safe: %s", path, why) }
	switch {
	case path == "" || len(path) > 1024:
		return bad("it is empty or very long")
	case !utf8.ValidString(path):
		return bad("it is not UTF-8")
	case strings.ContainsFunc(path, unicode.IsControl):
		return bad("it has control characters")
	case strings.ContainsAny(path, `\:*?"<>|`):
		return bad(`it has one of \ : * ? " < > |`)
	}
	for i, part := range strings.Split(path, "/") {
		switch {
		case part == "" || part == "." || part == "..":
			return bad("it has an empty, . or .. element, or begins with /")
		case len(part) > 255:
			return bad("a part of it is longer than 255 bytes")
		case strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") || strings.HasPrefix(part, " "):
			return bad("a part of it begins or ends with a space or ends with a dot")
		case isDevice(part):
			return bad(part + " is a device on Windows")
		case i == 0 && (strings.EqualFold(part, ".git") || strings.EqualFold(part, ".cache")):
			return bad(part + " is not for models")
		}
	}
	return nil
}

// isDevice reports whether Windows takes a name for a device, whatever its ending.
func isDevice(part string) bool {
	base, _, _ := strings.Cut(strings.ToUpper(part), ".")
	base = strings.TrimRight(base, " ")
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	for _, port := range []string{"COM", "LPT"} {
		if number, ok := strings.CutPrefix(base, port); ok && utf8.RuneCountInString(number) == 1 && strings.ContainsAny(number, "0123456789¹²³") {
			return true
		}
	}
	return false
}

// checkPaths checks all file names, also that no two are one file on a system that ignores case.
func checkPaths(files []file) error {
	seen := map[string]string{}
	for _, f := range files {
		if err := checkPath(f.Path); err != nil {
			return err
		}
		folded := strings.ToLower(f.Path)
		if other, ok := seen[folded]; ok {
			return fmt.Errorf("the file names %q and %q are one name on some systems", other, f.Path)
		}
		seen[folded] = f.Path
	}
	return nil
}
