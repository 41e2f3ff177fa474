package hub

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// patience is how long a file may be held by another program, as a virus scanner or the search index, which look at every
// file that was just written.
const patience = 3 * time.Second

// patiently tries again while another program holds a file.
func patiently(f func() error) error {
	end := time.Now().Add(patience)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		err := f()
		if !isHeld(err) || time.Now().Add(wait).After(end) {
			return err
		}
		time.Sleep(wait)
	}
}

// isHeld reports whether an error may be due to another program that has a file open. Windows says that access is denied
// also for a file that is open and cannot be replaced, and that a folder is not empty for one in which a deleted file is
// still open.
func isHeld(err error) bool {
	for _, code := range []windows.Errno{
		windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION, windows.ERROR_ACCESS_DENIED,
		windows.ERROR_USER_MAPPED_FILE, windows.ERROR_DIR_NOT_EMPTY, windows.ERROR_DELETE_PENDING,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// removeFrom deletes a file or an empty folder. Wine 8, and some drivers of file systems, do not know what os.Root asks for;
// by its path a link goes itself, not what it leads to.
func removeFrom(root *os.Root, name string) error {
	err := root.Remove(name)
	if errors.Is(err, windows.ERROR_INVALID_FUNCTION) {
		return os.Remove(filepath.Join(root.Name(), filepath.FromSlash(name)))
	}
	return err
}
