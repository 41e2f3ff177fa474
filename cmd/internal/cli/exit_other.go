//go:build !windows

package cli

import "os"

// Exit ends the process with a code, at once. Nothing of the libraries runs any more.
func Exit(code int) { os.Exit(code) }

// endOnInterrupt has nothing to do: the system ends the process.
func endOnInterrupt() (stop func()) { return func() {} }
