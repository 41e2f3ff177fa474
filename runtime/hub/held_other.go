//go:build !windows

package hub

import "os"

// patiently has nothing to wait for: a file can be renamed and deleted while other programs have it open.
func patiently(f func() error) error { return f() }

// isHeld is never so.
func isHeld(error) bool { return false }

// removeFrom deletes a file or an empty folder.
func removeFrom(root *os.Root, name string) error { return root.Remove(name) }
