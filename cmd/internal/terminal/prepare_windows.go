package terminal

import (
	"os"

	"golang.org/x/sys/windows"
)

// Prepare makes the console understand control sequences, as terminals elsewhere do, until restore is called.
func Prepare() (restore func()) {
	var undo []func()
	for _, f := range []*os.File{os.Stdout, os.Stderr} {
		console := windows.Handle(f.Fd())
		var mode uint32
		if windows.GetConsoleMode(console, &mode) != nil {
			continue // not a console
		}
		if windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil {
			undo = append(undo, func() { _ = windows.SetConsoleMode(console, mode) })
		}
	}
	return func() {
		for i := range undo { // the last first: both may be the same console
			undo[len(undo)-1-i]()
		}
	}
}
