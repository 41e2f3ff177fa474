package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/terminal"
	"mlxcel/runtime"
)

// session is a loaded model.
type session struct {
	model
	engine engine
}

// load finds the model, which may be to be downloaded, opens the library and loads the model; on a terminal, stderr
// shows how far it is.
func (a *app) load(ctx context.Context, o *modelOptions, streams cli.Streams) (*session, error) {
	path, err := o.Locate(ctx, streams)
	if err != nil {
		return nil, err
	}
	s, err := a.start(o, streams, func(e engine, settings runtime.ModelOptions) (model, error) { return e.LoadModel(path, settings) })
	if err == nil && !s.HasTokenizer() {
		return nil, errors.Join(fmt.Errorf("the model %s has no tokenizer, so it cannot read or write text: put its tokenizer.json into %s",
			s.Name(), cmp.Or(path, "its folder")), s.close())
	}
	return s, err
}

// start opens the library and loads a model on it.
func (a *app) start(o *modelOptions, streams cli.Streams, load func(engine, runtime.ModelOptions) (model, error)) (*session, error) {
	e, err := a.open(o.Options)
	if err != nil {
		return nil, err
	}
	library := e.Library()
	if reason := library.NoGPU; reason != "" && o.Device != "cpu" {
		fmt.Fprintf(streams.Err, "mlxcel: computing on the CPU: %s\n", reason)
	}
	for _, skipped := range library.Skipped {
		if skipped.Problem != library.NoGPU {
			fmt.Fprintf(streams.Err, "mlxcel: computing with the library %s, which may be slower: %v\n", library.Variant, skipped)
		}
	}
	if library.JITCache != "" {
		if made, err := os.ReadDir(library.JITCache); err == nil && len(made) == 0 {
			fmt.Fprintf(streams.Err, "mlxcel: compiling for the GPU %s; the next start finds it in %s\n", library.GPU.Name, library.JITCache)
		}
	}
	settings := runtime.ModelOptions{ContextTokens: o.context, Slots: 1}
	done := func() {}
	if terminal.Is(streams.Err) {
		settings.Progress, done = progress(streams.Err)
	}
	m, err := load(e, settings)
	done()
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	s := &session{m, e}
	if o.verbose {
		s.describe(streams.Err)
	}
	return s, nil
}

func (s *session) describe(w io.Writer) {
	facts, library := s.Facts(), s.engine.Library()
	fmt.Fprintf(w, "library  %s: %s\n", library.Path, describeLibrary(library))
	fmt.Fprintf(w, "model    %s: %s of weights, loaded in %s, context of %d tokens\n",
		s.Name(), cli.Bytes(facts.WeightBytes), formatDuration(facts.LoadTime), facts.MaxTokens)
}

func (s *session) close() error { return s.engine.Close() }

// answer is what came of a request, as far as it got.
type answer struct {
	text    strings.Builder
	tokens  []int32
	summary *runtime.Summary // nil if it never started
}

// answer answers a request and gives every piece of text to emit, whose error ends it. The answer is never nil; the
// error is cli.ErrInterrupted when ctx ended.
func (s *session) answer(ctx context.Context, r runtime.Request, emit func(text string) error) (*answer, error) {
	a := &answer{tokens: []int32{}}
	for piece, err := range s.Generate(ctx, r) {
		a.text.WriteString(piece.Text)
		if piece.Token >= 0 {
			a.tokens = append(a.tokens, piece.Token)
		}
		if piece.Summary != nil {
			a.summary = piece.Summary
		}
		if piece.Text != "" {
			if err := emit(piece.Text); err != nil {
				return a, fmt.Errorf("the answer cannot be written: %w", err)
			}
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil && (a.summary == nil || a.summary.Finish == runtime.FinishCancelled) {
			return a, cli.ErrInterrupted
		}
		return a, err
	}
	return a, nil
}
