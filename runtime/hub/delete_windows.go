package hub

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// removeFrom deletes a file or an empty folder. Wine 8, and some drivers of file systems, do not know what os.Root asks for;
// by its path a link goes itself, not what it leads to.
func removeFrom(root *os.Root, name string) error {
	err := root.Remove(name)
	if errors.Is(err, windows.ERROR_INVALID_FUNCTION) {
		return os.Remove(filepath.Join(root.Name(), filepath.FromSlash(name)))
	}
	return err
}
