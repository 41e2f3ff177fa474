package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/models"
	"mlxcel/runtime/hub"
)

const downloadHelp = `
NAME is ORG/NAME on the Hugging Face Hub; NAME alone, which means mlx-community/NAME;
or a short name like qwen3:0.6b or smollm2. ORG/NAME:PART chooses among several GGUF
files the one with PART in its name. The same names work for -m of other commands.

Fetched are the files that a model needs: its description, tokenizer, templates and
safetensors or GGUF weights, never pickles. They go to the cache of the Hub's Python
client, which uses them too. What is there already is not fetched again; what was
interrupted goes on. The path goes to stdout.

Variables: HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE,
HF_HUB_DISABLE_SYMLINKS, HTTPS_PROXY, NO_PROXY, MLXCEL_EXTRA_CA_CERTS (a PEM file).`

const downloadExample = `
mlxcel download qwen3:0.6b
mlxcel download mlx-community/Llama-3.2-1B-Instruct-4bit --revision main
mlxcel download org/model --include '*.json' --include 'model-00001*' --local-dir model`

// hubOptions say which Hub to ask, and for what.
type hubOptions struct {
	revision, token, endpoint string
	offline                   bool
}

func (o *hubOptions) define(f *pflag.FlagSet) {
	f.StringVar(&o.revision, "revision", "", "branch, tag or commit `REV`; default: main")
	f.StringVar(&o.token, "token", "", "`TOKEN` of the Hub; default: $HF_TOKEN, or the one that the Python client keeps")
	f.StringVar(&o.endpoint, "endpoint", "", "`ADDRESS` of the Hub; default: $HF_ENDPOINT, or "+hub.DefaultEndpoint)
	f.BoolVar(&o.offline, "offline", false, "do not touch the network, as HF_HUB_OFFLINE=1")
}

// settings are those of the environment where the flags do not say otherwise.
func (o *hubOptions) settings() (hub.Settings, error) {
	s, err := hub.FromEnvironment()
	if o.token != "" {
		s.Token = o.token
	}
	if o.endpoint != "" {
		s.Endpoint = o.endpoint
	}
	s.Offline = s.Offline || o.offline
	return s, err
}

type downloadOptions struct {
	hubOptions
	request     hub.Request
	quiet, json bool
}

func (a *app) download(f *pflag.FlagSet) cli.Run {
	var o downloadOptions
	o.hubOptions.define(f)
	r := &o.request
	f.StringArrayVar(&r.Include, "include", nil, "fetch the files that match `GLOB` in place of those needed; may be repeated")
	f.StringArrayVar(&r.Exclude, "exclude", nil, "do not fetch files that match `GLOB`; may be repeated")
	f.StringVar(&r.LocalDir, "local-dir", "", "put the files into `FOLDER`, not into the cache")
	f.IntVar(&r.Parallel, "parallel", 8, "`NUMBER` of connections at once")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only the path, and errors")
	f.BoolVar(&o.json, "json", false, "print events and the result as one JSON object a line")
	return func(ctx context.Context, args []string, s cli.Streams) error {
		if len(args) == 0 {
			return cli.Usagef("no model is named, as in mlxcel download qwen3:0.6b")
		}
		if r.Parallel < 1 || r.Parallel > hub.MaxParallel {
			return cli.Usagef("--parallel is %d, want 1 to %d", r.Parallel, hub.MaxParallel)
		}
		return runDownload(ctx, &o, args[0], s)
	}
}

func runDownload(ctx context.Context, o *downloadOptions, name string, s cli.Streams) error {
	ref, err := hub.ParseReference(name)
	if err != nil {
		return err
	}
	settings, err := o.settings()
	if err != nil {
		return err
	}
	o.request.Reference, o.request.Revision = ref, o.revision
	result, err := models.Fetch(ctx, settings, o.request, models.NewView(s, o.quiet, o.json), s.Err)
	if err != nil {
		return err
	}
	if o.json {
		err = json.NewEncoder(s.Out).Encode(jsonDownload(result)) // a line, like the events
	} else {
		if !o.quiet {
			fmt.Fprintf(s.Err, "%s, revision %s (%.12s): %s, %s, %s\n", result.Model, result.Revision, result.Commit,
				count(result.Files, "file"), cli.Bytes(result.Bytes), fetchedNow(result))
		}
		_, err = fmt.Fprintln(s.Out, result.Path)
	}
	if err != nil {
		return fmt.Errorf("the answer cannot be written: %w", err)
	}
	return nil
}

func fetchedNow(r *hub.Result) string {
	if r.Fetched == 0 {
		return "all of it was here"
	}
	return cli.Bytes(r.Fetched) + " downloaded now"
}

// downloaded is the last object that download --json prints.
type downloaded struct {
	Event    string `json:"event"`
	Model    string `json:"model"`
	Revision string `json:"revision"`
	Commit   string `json:"commit"`
	Path     string `json:"path"`
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
	Fetched  int64  `json:"fetched_bytes"`
}

func jsonDownload(r *hub.Result) downloaded {
	return downloaded{"result", r.Model, r.Revision, r.Commit, r.Path, r.Files, r.Bytes, r.Fetched}
}
