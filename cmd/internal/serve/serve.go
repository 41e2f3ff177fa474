// Package serve is the command that serves a model over HTTP: `mlxcel serve`, and the program mlxcel-server.
package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"mlxcel/cmd/internal/cli"
	"mlxcel/runtime"
	"mlxcel/runtime/server"
)

const help = `
The server speaks OpenAI's API (/v1/chat/completions, /v1/completions, /v1/responses,
/v1/embeddings, /v1/models) and a part of llama-server's (/tokenize, /detokenize,
/apply-template, /props, /slots, /health, /metrics). At / there is a page to chat with.

It listens at once and answers 503 until the model is loaded. What happens is logged
to stderr: a line a request, with its id, but nothing of what anyone wrote.

The first SIGTERM or Ctrl-C lets running requests end, the second ends at once.
Exit codes: 0 after such an end, 1 for a failure, 2 for a wrong command line.`

// Model is a model that can be closed.
type Model interface {
	server.Model
	Close() error
}

// Open opens a library and loads a model. A test may have another one.
type Open func(runtime.Options, string, runtime.ModelOptions) (Model, error)

// Command returns the command under a name; nil for open takes package runtime's.
func Command(name string, open Open) cli.Command {
	if open == nil {
		open = openRuntime
	}
	return cli.Command{
		Name: name, Short: "serve a model over HTTP, as OpenAI does", Usage: "[-m MODEL] [flags]", Long: help,
		Flags: func(f *pflag.FlagSet) cli.Run {
			o := &options{}
			o.define(f)
			return func(ctx context.Context, _ []string, s cli.Streams) error {
				if err := o.check(); err != nil {
					return err
				}
				return serve(ctx, o, open, s.Err)
			}
		},
	}
}

// Aliases are other spellings of flags: those of llama-server.
func Aliases() map[string]string {
	return map[string]string{
		"ctx-size": "context", "n-predict": "max-tokens", "temperature": "temp", "repeat-penalty": "repetition-penalty",
		"ssl-cert-file": "tls-cert", "ssl-key-file": "tls-key",
	}
}

// ownRuntime is a model with the runtime that was opened for it.
type ownRuntime struct {
	*runtime.Model
	runtime *runtime.Runtime
}

// Close closes both.
func (m ownRuntime) Close() error { return m.runtime.Close() }

func openRuntime(o runtime.Options, path string, m runtime.ModelOptions) (Model, error) {
	rt, err := runtime.Open(o)
	if err != nil {
		return nil, err
	}
	model, err := rt.LoadModel(path, m)
	if err != nil {
		return nil, errors.Join(err, rt.Close())
	}
	return ownRuntime{model, rt}, nil
}

// serve listens, loads the model and answers until it is told to stop.
func serve(ctx context.Context, o *options, open Open, stderr io.Writer) error {
	log := newLogger(o, stderr)
	var err error
	if o.server.Keys, err = o.allKeys(); err != nil {
		return err
	}
	if o.server.TLS, err = o.certificate(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.address())
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w: choose another --port or --host", o.address(), err)
	}
	if len(o.server.Keys) == 0 && !server.IsLoopback(listener.Addr()) {
		log.Warn("everyone who reaches this machine can use the server: set --api-key, or --host 127.0.0.1")
	}
	scheme := "http"
	if o.server.TLS != nil {
		scheme = "https"
	}
	log.Info("listening", "url", scheme+"://"+listener.Addr().String())

	ctx, stop := untilSignal(ctx)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.server.Logger, o.server.Build = log, "mlxcel "+cli.Version
	s := server.New(o.server)
	loaded := make(chan Model, 1)
	go func() {
		defer close(loaded)
		m, err := load(ctx, o, open, log)
		if err == nil {
			loaded <- m
			err = s.Ready(m)
		}
		if err != nil {
			s.Fail(err)
			cancel(err)
			return
		}
		facts := m.Facts()
		attributes := []any{"model", m.Name(), "context", facts.MaxTokens, "slots", len(m.Stats().Slots), "loaded_in", facts.LoadTime}
		if on, ok := m.(interface{ Library() runtime.Library }); ok {
			attributes = append(attributes, "library", on.Library().Variant)
		}
		log.Info("ready", attributes...)
	}()
	err = s.Serve(ctx, listener)
	select {
	case m, ok := <-loaded: // a model that is still being loaded ends with the process
		if ok {
			err = errors.Join(err, m.Close())
		}
	default:
	}
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause // the model cannot be loaded
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// load finds the model, which may be to be downloaded, and opens it.
func load(ctx context.Context, o *options, open Open, log *slog.Logger) (Model, error) {
	path, err := o.named.LocateLogged(ctx, log)
	if err != nil {
		return nil, err
	}
	return open(o.library, path, o.model)
}

// untilSignal returns a context that ends at the first SIGTERM or Ctrl-C. At a second one the process ends at once.
func untilSignal(ctx context.Context) (_ context.Context, stop func()) {
	done := cli.HandlesInterrupts()
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopped := make(chan struct{})
	go func() {
		for range 2 {
			select {
			case <-signals:
				if ctx.Err() != nil {
					cli.Exit(cli.ExitInterrupted)
				}
				cancel()
			case <-stopped:
				return
			}
		}
	}()
	return ctx, func() {
		done()
		signal.Stop(signals)
		close(stopped)
		cancel()
	}
}

func newLogger(o *options, stderr io.Writer) *slog.Logger {
	settings := &slog.HandlerOptions{Level: o.level()}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(stderr, settings))
	}
	return slog.New(slog.NewTextHandler(stderr, settings))
}

// allKeys are the keys of the flags, of the environment and of the file.
func (o *options) allKeys() ([]string, error) {
	var keys []string
	add := func(list ...string) {
		for _, k := range list {
			if k = strings.TrimSpace(k); k != "" {
				keys = append(keys, k)
			}
		}
	}
	for _, k := range o.keys {
		if strings.TrimSpace(k) == "" {
			return nil, cli.Usagef("--api-key is empty: give a key, or leave the flag out")
		}
		add(k)
	}
	add(strings.Split(os.Getenv("MLXCEL_API_KEY"), ",")...)
	if o.keyFile == "" {
		return keys, nil
	}
	f, err := os.Open(o.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--api-key-file cannot be read: %w", err)
	}
	defer f.Close() // only read
	before := len(keys)
	lines := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); !strings.HasPrefix(line, "#") {
			add(line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--api-key-file cannot be read: %w", err)
	}
	if len(keys) == before {
		return nil, fmt.Errorf("--api-key-file %s has no key: want one a line", o.keyFile)
	}
	return keys, nil
}

// certificate is what to answer over HTTPS with, nil for HTTP.
func (o *options) certificate() (*tls.Config, error) {
	if o.cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(o.cert, o.certKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key cannot be used: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
