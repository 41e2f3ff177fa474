package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// Exit ends the process with a code, at once. Nothing of the libraries runs any more: on Windows an ordinary end stops
// all threads wherever they are and then calls every DLL, and one that waits for its own threads crashes or hangs there.
func Exit(code int) {
	_ = windows.TerminateProcess(windows.CurrentProcess(), uint32(code))
	os.Exit(code)
}
