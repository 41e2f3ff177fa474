//go:build !windows

package hub

import "os"

// removeFrom deletes a file or an empty folder.
func removeFrom(root *os.Root, name string) error { return root.Remove(name) }
