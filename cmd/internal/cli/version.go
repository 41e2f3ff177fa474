package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the release of all programs of the project.
const Version = "0.1.0"

// VersionLine says what a program is: release, revision where the build recorded one, platform and Go.
func VersionLine(program string) string {
	return fmt.Sprintf("%s %s%s %s/%s %s", program, Version, revision(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var hash, changed string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			hash = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", changed"
		}
	}
	if hash == "" {
		return ""
	}
	return " (" + hash + changed + ")"
}
