//go:build !windows

package engine

// stayAwake has nothing to do: other systems do not sleep while a program computes, or ask their user.
func stayAwake(bool) {}
