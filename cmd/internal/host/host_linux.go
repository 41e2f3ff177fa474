package host

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func system() string {
	name := strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`)
	if name == "" {
		name = "Linux"
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		name += ", kernel " + unix.ByteSliceToString(u.Release[:])
	}
	return name
}

func processor() string { return field("/proc/cpuinfo", "model name", ":") }

func memory() (total, available int64) {
	const file = "/proc/meminfo"
	return kilobytes(field(file, "MemTotal", ":")), kilobytes(field(file, "MemAvailable", ":"))
}

// peakMemory is the high-water mark of the resident set.
func peakMemory() int64 { return kilobytes(field("/proc/self/status", "VmHWM", ":")) }

// field returns the value of the first line of a file that is "name<separator>value", "" if there is none.
func field(file, name, separator string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), separator)
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kilobytes reads "123 kB", in bytes.
func kilobytes(value string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(value, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n * 1024
}
