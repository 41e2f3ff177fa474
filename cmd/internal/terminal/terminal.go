// Package terminal asks whether a stream is a terminal, and prepares it.
package terminal

import (
	"os"

	"golang.org/x/term"
)

// Is reports whether a stream, a reader or a writer, is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width returns the columns of a terminal, within what is readable, and 100 for everything else.
func Width(stream any) int {
	if n := columns(stream); n > 0 {
		return min(max(n, 60), 120)
	}
	return 100
}

// HasSize reports whether a stream is a terminal that knows its size, so that lines can be edited on it.
func HasSize(stream any) bool { return columns(stream) > 0 }

func columns(stream any) int {
	f, ok := stream.(*os.File)
	if !ok {
		return 0
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}
