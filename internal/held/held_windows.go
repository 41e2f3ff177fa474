package held

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/windows"
)

// patience is how long a file may be held.
const patience = 3 * time.Second

// Retry calls f again while its error is one for which held holds, for some seconds in all, and returns the last error.
func Retry(held func(error) bool, f func() error) error {
	end := time.Now().Add(patience)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		err := f()
		if !held(err) || time.Now().Add(wait).After(end) {
			return err
		}
		time.Sleep(wait)
	}
}

// Opening reports whether an error of opening a file says that another program holds it.
func Opening(err error) bool { return is(err, opening) }

// Replacing reports whether an error of renaming or deleting a file may be due to another program that has it open. Windows
// says that access is denied also for a file that is open and cannot be replaced, and that a folder is not empty for one in
// which a deleted file is still open.
func Replacing(err error) bool { return is(err, replacing) }

var (
	opening   = []windows.Errno{windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION}
	replacing = append(slices.Clone(opening), windows.ERROR_ACCESS_DENIED,
		windows.ERROR_USER_MAPPED_FILE, windows.ERROR_DIR_NOT_EMPTY, windows.ERROR_DELETE_PENDING)
)

func is(err error, codes []windows.Errno) bool {
	return slices.ContainsFunc(codes, func(code windows.Errno) bool { return errors.Is(err, code) })
}
