package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime/hub"
)

const infoHelp = `
Tells of a model that is downloaded what lies in the cache, and of another one what
the Hub says, without downloading it. NAME is as for mlxcel download; mlxcel inspect
tells more of a folder or file.`

const infoExample = `
mlxcel info qwen3:0.6b
mlxcel info mlx-community/Qwen3-8B-4bit --json`

func (a *app) info(f *pflag.FlagSet) cli.Run {
	var o hubOptions
	o.define(f)
	asJSON := f.Bool("json", false, "print one JSON object; sizes are in bytes")
	return func(ctx context.Context, args []string, s cli.Streams) error {
		if len(args) == 0 {
			return cli.Usagef("no model is named, as in mlxcel info qwen3:0.6b")
		}
		info, err := a.findInfo(ctx, o, args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(s.Out, info)
		}
		if err := printInfo(s.Out, info); err != nil {
			return fmt.Errorf("the answer cannot be written: %w", err)
		}
		return nil
	}
}

// findInfo looks into the cache, then asks the Hub.
func (a *app) findInfo(ctx context.Context, o hubOptions, name string) (hub.Info, error) {
	ref, err := hub.ParseReference(name)
	if err != nil {
		return hub.Info{}, err
	}
	settings, err := o.settings()
	if err != nil {
		return hub.Info{}, err
	}
	info, err := settings.Cached(ref.Model, o.revision)
	switch {
	case errors.Is(err, hub.ErrNotCached) && settings.Offline:
		return info, fmt.Errorf("%w: %w", hub.ErrOffline, err)
	case errors.Is(err, hub.ErrNotCached):
		return hub.Look(ctx, settings, ref, o.revision)
	case err == nil && filepath.Ext(info.Path) == ".gguf":
		if i, err := a.inspectModel(info.Path); err == nil { // else the file is told by its name only
			info.Type, info.Context, info.Quantization = i.Family, i.Config.MaxPositions, formats(i.Formats)
		}
	}
	return info, err
}

func printInfo(w io.Writer, i hub.Info) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, value)
		}
	}
	row("model", i.Model)
	row("revision", strings.TrimSpace(i.Revision+" "+i.Commit))
	where := "to be downloaded"
	if i.Path != "" {
		where = "on the disk"
	}
	row("size", cli.Bytes(i.Bytes)+" "+where)
	row("type", i.Type)
	row("weights", i.Quantization)
	if i.Context > 0 {
		row("context", fmt.Sprintf("%d tokens", i.Context))
	}
	row("licence", cmp.Or(i.Licence, "not said"))
	row("path", i.Path)
	if i.Path != "" && !i.Downloaded {
		row("", "in part: mlxcel download "+i.Model+" gets the rest")
	}
	for n, file := range i.Files {
		name := ""
		if n == 0 {
			name = "files"
		}
		row(name, file)
	}
	return t.Flush()
}
