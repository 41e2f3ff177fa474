// Package models finds the model that a command line names, and downloads it if it is not here.
package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/terminal"
	"mlxcel/runtime"
	"mlxcel/runtime/hub"
)

// Flags are those that name a model.
type Flags struct {
	name     string
	revision string
	offline  bool
}

// Define defines them.
func (m *Flags) Define(f *pflag.FlagSet) {
	f.StringVarP(&m.name, "model", "m", "", "`MODEL`: a folder, a GGUF file, or a name as for mlxcel download; default: $MLXCEL_MODEL, or the first one in the folder models beside the program")
	f.StringVar(&m.revision, "revision", "", "branch, tag or commit `REV` of a model by name; default: main")
	f.BoolVar(&m.offline, "offline", false, "use only what is downloaded, as HF_HUB_OFFLINE=1 does")
}

// Find returns the path of the model if it is here; the error wraps hub.ErrNotCached, with the reference, if it is not.
// A path that is "" means the default model.
func (m *Flags) Find() (path string, ref hub.Reference, s hub.Settings, err error) {
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

// Locate returns the path of the model. One of the Hub that is not here it downloads, after asking whoever sits there;
// Ctrl-C ends that.
func (m *Flags) Locate(ctx context.Context, s cli.Streams) (string, error) {
	return m.locate(ctx, func(ref hub.Reference, size string) (View, error) {
		if !terminal.Is(s.In) || !terminal.Is(s.Err) {
			fmt.Fprintf(s.Err, "downloading %s, %s\n", ref, size)
		} else if !cli.Confirm(s, fmt.Sprintf("%s is not here. Download %s?", ref, size), true) {
			return nil, cli.ErrInterrupted
		}
		return NewView(s, false, false), nil
	}, func(ctx context.Context, settings hub.Settings, r hub.Request, v View) (*hub.Result, error) {
		return Fetch(ctx, settings, r, v, s.Err)
	})
}

// LocateLogged is Locate for a program that nobody sits at: it asks nothing, and logs how the download goes.
func (m *Flags) LocateLogged(ctx context.Context, log *slog.Logger) (string, error) {
	return m.locate(ctx, func(ref hub.Reference, size string) (View, error) {
		log.Info("downloading", "model", ref.String(), "size", size)
		return newLineView(func(line string) { log.Info("downloading", "progress", line) }), nil
	}, download)
}

// locate finds the model or downloads it with fetch; begin is called before that.
func (m *Flags) locate(ctx context.Context, begin func(ref hub.Reference, size string) (View, error),
	fetch func(context.Context, hub.Settings, hub.Request, View) (*hub.Result, error),
) (string, error) {
	path, ref, settings, err := m.Find()
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
	view, err := begin(ref, cli.Bytes(info.Bytes))
	if err != nil {
		return "", err
	}
	result, err := fetch(ctx, settings, hub.Request{Reference: ref, Revision: m.revision}, view)
	if err != nil {
		return "", err
	}
	return result.Path, nil
}
