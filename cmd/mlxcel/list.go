package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/terminal"
	"mlxcel/runtime/hub"
)

const listHelp = `
Models that are in the cache only in part are marked: mlxcel download gets the rest.
Sizes are what a model takes on the disk, all its revisions together.`

func (a *app) list(f *pflag.FlagSet) cli.Run {
	asJSON := f.Bool("json", false, "print one JSON array; sizes are in bytes")
	return func(_ context.Context, _ []string, s cli.Streams) error {
		settings, err := hub.FromEnvironment()
		if err != nil {
			return err
		}
		models, err := settings.List()
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(s.Out, append([]hub.Info{}, models...))
		}
		if len(models) == 0 {
			fmt.Fprintf(s.Err, "there are no models in %s: mlxcel download qwen3:0.6b gets one\n", settings.Cache)
			return nil
		}
		if err := printModels(s.Out, models); err != nil {
			return fmt.Errorf("the answer cannot be written: %w", err)
		}
		return nil
	}
}

func printModels(w io.Writer, models []hub.Info) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MODEL\tSIZE\tTYPE\tWEIGHTS\tREVISION\t")
	for _, m := range models {
		note := ""
		if !m.Downloaded {
			note = "in part"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.12s\t%s\n", m.Model, cli.Bytes(m.Bytes), m.Type, m.Quantization, m.Commit, note)
	}
	return t.Flush()
}

// maxRemoved bounds the models of one command line.
const maxRemoved = 1000

const removeHelp = `
Deletes models, with all their revisions, from the cache, which is also that of the
Hub's Python client. It asks first, unless --yes is given.`

func (a *app) remove(f *pflag.FlagSet) cli.Run {
	yes := f.BoolP("yes", "y", false, "do not ask")
	return func(_ context.Context, args []string, s cli.Streams) error {
		if len(args) == 0 {
			return cli.Usagef("no model is named: mlxcel list shows those that there are")
		}
		settings, err := hub.FromEnvironment()
		if err != nil {
			return err
		}
		for _, name := range args {
			if err := removeModel(settings, name, *yes, s); err != nil {
				return err
			}
		}
		return nil
	}
}

func removeModel(settings hub.Settings, name string, yes bool, s cli.Streams) error {
	models, err := settings.List()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(models, func(i hub.Info) bool { return i.Model == name }) { // so it is short or wrong
		ref, err := hub.ParseReference(name)
		if err != nil {
			return err
		}
		if ref.File != "" {
			return cli.Usagef("a model is removed with all its files: leave out %q", ":"+ref.File)
		}
		name = ref.Model
	}
	info, err := settings.Cached(name, "")
	if err != nil && !errors.Is(err, hub.ErrNotCached) {
		return err
	}
	if !yes && err == nil {
		if !terminal.Is(s.In) {
			return cli.Usagef("nobody is there to be asked: give --yes to delete %s", name)
		}
		if !cli.Confirm(s, fmt.Sprintf("Delete %s, %s?", name, cli.Bytes(info.Bytes)), false) {
			return cli.ErrInterrupted
		}
	}
	freed, err := settings.Remove(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "%s is deleted: %s are free again\n", name, cli.Bytes(freed))
	return nil
}
