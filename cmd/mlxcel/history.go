package main

import (
	"os"
	"path/filepath"
	"strings"
)

// maxHistory is how many lines a history keeps.
const maxHistory = 1000

// history holds the lines that were typed, oldest first, and keeps them in a file.
type history struct {
	path  string // "": in no file
	lines []string
}

// historyPath returns $MLXCEL_HISTORY, or a file in the user's configuration folder. It is "" for no history: where the
// variable is set to that, or there is no such folder.
func historyPath() string {
	if path, set := os.LookupEnv("MLXCEL_HISTORY"); set {
		return path
	}
	folder, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(folder, "mlxcel", "chat_history")
}

// openHistory reads a history; what cannot be read counts as empty. It cuts a file that has grown long.
func openHistory(path string) *history {
	h := &history{path: path}
	if path == "" {
		return h
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		h.path = "" // a pipe would be waited for, a device has no end
		return h
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return h
	}
	h.lines = strings.Split(strings.TrimSuffix(strings.ToValidUTF8(string(text), "\uFFFD"), "\n"), "\n")
	if len(h.lines) > maxHistory {
		long := len(h.lines) > 2*maxHistory
		h.lines = h.lines[len(h.lines)-maxHistory:]
		if long {
			// If it fails, the file stays long, and the next session tries again.
			_ = os.WriteFile(path, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600)
		}
	}
	return h
}

// add appends a line, at once, so that no way of ending the program loses it. Only its user can read the file.
func (h *history) add(line string) error {
	if n := len(h.lines); strings.TrimSpace(line) == "" || n > 0 && h.lines[n-1] == line {
		return nil
	}
	h.lines = append(h.lines, line)
	if h.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
