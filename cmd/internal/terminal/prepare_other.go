//go:build !windows

package terminal

// Prepare has nothing to do: terminals understand control sequences.
func Prepare() (restore func()) { return func() {} }
