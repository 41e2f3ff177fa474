package cli

import (
	"bufio"
	"fmt"
	"strings"
)

// Bytes writes a size with a unit, in powers of 1000.
func Bytes(n int64) string {
	switch {
	case n <= 0:
		return "unknown"
	case n < 1e6:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

// Confirm asks for y or n; a line end alone is what is usual, and the end of the input is no.
func Confirm(s Streams, question string, usual bool) bool {
	choices := "[y/N]"
	if usual {
		choices = "[Y/n]"
	}
	fmt.Fprintf(s.Err, "%s %s ", question, choices)
	line, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil {
		fmt.Fprintln(s.Err)
		return false
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "":
		return usual
	case "y", "yes":
		return true
	}
	return false
}
