package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/terminal"
	"mlxcel/runtime"
	"mlxcel/runtime/hub"
)

// modelName is the model that a command line names.
type modelName struct {
	name     string
	revision string
	offline  bool
}

func (m *modelName) define(f *pflag.FlagSet) {
	f.StringVarP(&m.name, "model", "m", "", "`MODEL`: a folder, a GGUF file, or a name as for mlxcel download; default: $MLXCEL_MODEL, or the first one in the folder models beside mlxcel")
	f.StringVar(&m.revision, "revision", "", "branch, tag or commit `REV` of a model by name; default: main")
	f.BoolVar(&m.offline, "offline", false, "use only what is downloaded, as HF_HUB_OFFLINE=1 does")
}

// find returns the path of the model if it is here; the error wraps hub.ErrNotCached, with the reference, if it is not.
// A path that is "" means the default model.
func (m *modelName) find() (path string, ref hub.Reference, s hub.Settings, err error) {
	given := cmp.Or(m.name, os.Getenv("MLXCEL_MODEL"))
	if given == "" {
		return "", ref, s, nil
	}
	name, err := runtime.ParseName(given)
	if err != nil {
		return "", ref, s, err
	}
	if s, err = hub.FromEnvironment(); err != nil {
		return "", ref, s, err
	}
	s.Offline = s.Offline || m.offline
	path, err = name.Find(s, m.revision)
	return path, name.Hub, s, err
}

// locate returns the path of the model. One of the Hub that is not here it downloads, after asking whoever sits there.
func (m *modelName) locate(ctx context.Context, s cli.Streams) (string, error) {
	path, ref, settings, err := m.find()
	if !errors.Is(err, hub.ErrNotCached) {
		return path, err
	}
	if settings.Offline {
		return "", fmt.Errorf("%w: %w", hub.ErrOffline, err)
	}
	info, err := hub.Look(ctx, settings, ref, m.revision)
	if err != nil {
		return "", err
	}
	size := formatBytes(info.Bytes)
	if terminal.Is(s.In) && terminal.Is(s.Err) {
		if !confirm(s, fmt.Sprintf("%s is not here. Download %s?", ref, size), true) {
			return "", cli.ErrInterrupted
		}
	} else {
		fmt.Fprintf(s.Err, "downloading %s, %s\n", ref, size)
	}
	result, err := fetch(ctx, settings, hub.Request{Reference: ref, Revision: m.revision}, newView(s, false, false), s.Err)
	if err != nil {
		return "", err
	}
	return result.Path, nil
}

// confirm asks for y or n; a line end alone is what is usual, and the end of the input is no.
func confirm(s cli.Streams, question string, usual bool) bool {
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
