package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mlxcel/runtime/hub"
)

// Name is what the name of a model stands for: a path, or a model of the Hub.
type Name struct {
	Path string        // folder or GGUF file; "" for a model of the Hub
	Hub  hub.Reference // zero for a path
}

// ParseName tells what a name stands for: a folder or file that exists, what looks like one, or else a model of the Hub
// by a name that [hub.ParseReference] knows. An empty one is [DefaultModel].
func ParseName(name string) (Name, error) {
	if name == "" {
		path, err := DefaultModel()
		return Name{Path: path}, err
	}
	_, err := os.Stat(name)
	if err == nil || looksLikePath(name) {
		return Name{Path: name}, nil // what is wrong with the path, opening it tells
	}
	ref, err := hub.ParseReference(name)
	if err != nil {
		return Name{}, fmt.Errorf("there is no folder or file of this name, and %w", err)
	}
	return Name{Hub: ref}, nil
}

// looksLikePath reports whether a name can be no model of the Hub.
func looksLikePath(name string) bool {
	slash := filepath.ToSlash(name)
	return filepath.IsAbs(name) || filepath.VolumeName(name) != "" || strings.HasPrefix(slash, ".") || strings.HasPrefix(slash, "~") ||
		strings.HasSuffix(slash, "/") || strings.Count(slash, "/") > 1 && !strings.Contains(name, "://") || strings.EqualFold(filepath.Ext(name), ".gguf")
}

// Find returns the path to give to [Runtime.LoadModel] or [Inspect]. It never touches the network: the error wraps
// [hub.ErrNotCached] for a model of the Hub that is not downloaded. An empty revision is the main one.
func (n Name) Find(s hub.Settings, revision string) (string, error) {
	if n.Path != "" {
		if revision != "" {
			return "", errors.New("a revision is for models of the Hub, not for a path")
		}
		return n.Path, nil
	}
	if revision == "" {
		revision = hub.DefaultRevision
	}
	return s.Find(n.Hub, revision)
}
