package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"mlxcel/cmd/internal/cli"
	"mlxcel/cmd/internal/terminal"
	"mlxcel/runtime/hub"
)

// Fetch downloads a model, shows how that goes, and lets Ctrl-C end it.
func Fetch(ctx context.Context, settings hub.Settings, r hub.Request, v View, stderr io.Writer) (*hub.Result, error) {
	ctx, stop := cli.Interruptible(ctx, nil)
	defer stop()
	last := &lastTally{View: v}
	result, err := download(ctx, settings, r, last)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintf(stderr, "stopped with %s here, which are kept: the same command goes on\n", last.tally.progress())
		return nil, cli.ErrInterrupted
	}
	return result, err
}

// download downloads a model and shows how that goes.
func download(ctx context.Context, settings hub.Settings, r hub.Request, v View) (*hub.Result, error) {
	t := &tally{files: map[string]*fileTally{}}
	r.Progress = func(e hub.Event) {
		t.count(e, time.Now())
		v.event(e, t)
	}
	defer v.end(t)
	return hub.Download(ctx, settings, r)
}

// lastTally is a view that keeps what was counted.
type lastTally struct {
	View
	tally *tally
}

func (v *lastTally) end(t *tally) {
	v.tally = t
	v.View.end(t)
}

// tally counts what has arrived. Its fields are for views to read.
type tally struct {
	files       map[string]*fileTally
	size, bytes int64 // of all files that are fetched
	now         time.Time
	samples     []sample
}

type fileTally struct{ size, bytes int64 }

// sample is how many bytes were here at a time.
type sample struct {
	at    time.Time
	bytes int64
}

// speedSpan is how far back the speed looks.
const speedSpan = 5 * time.Second

func (t *tally) count(e hub.Event, now time.Time) {
	t.now = now
	f := t.files[e.File]
	switch e.Kind {
	case hub.EventFile:
		t.files[e.File] = &fileTally{size: e.Size}
		t.size += e.Size
	case hub.EventProgress, hub.EventResume:
		f.bytes += e.Bytes
		t.bytes += e.Bytes
	case hub.EventDone:
		e.Bytes = f.size - f.bytes // that another process got, or another revision had
		f.bytes = f.size
		t.bytes += e.Bytes
	}
	if e.Kind != hub.EventProgress && e.Bytes != 0 {
		t.samples = nil // those came at no speed of ours
	}
	if n := len(t.samples); n > 0 && now.Sub(t.samples[n-1].at) < 100*time.Millisecond {
		return
	}
	t.samples = append(t.samples, sample{now, t.bytes})
	for now.Sub(t.samples[0].at) > speedSpan {
		t.samples = t.samples[1:]
	}
}

// speed is that of the last seconds, in bytes a second, 0 while unknown.
func (t *tally) speed() float64 {
	if len(t.samples) == 0 {
		return 0
	}
	first := t.samples[0]
	seconds := t.now.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return max(float64(t.bytes-first.bytes)/seconds, 0)
}

// progress says how much is here.
func (t *tally) progress() string {
	return fmt.Sprintf("%s of %s", cli.Bytes(max(t.bytes, 1)), cli.Bytes(max(t.size, 1)))
}

// pace says how fast it goes and how long it still takes, "" while unknown.
func (t *tally) pace() string {
	speed := t.speed()
	if speed < 1 {
		return ""
	}
	left := time.Duration(float64(t.size-t.bytes) / speed * float64(time.Second))
	return fmt.Sprintf("%s/s, %s left", cli.Bytes(int64(speed)), left.Round(time.Second))
}

// View shows how a download goes. Its methods are called by one goroutine at a time.
type View interface {
	event(e hub.Event, t *tally)
	end(t *tally)
}

// NewView returns the right one for who looks.
func NewView(s cli.Streams, quiet, asJSON bool) View {
	switch {
	case asJSON:
		return &jsonView{encoder: json.NewEncoder(s.Out)}
	case quiet:
		return quietView{}
	case terminal.Is(s.Err):
		return newBars(s.Err)
	}
	return newLineView(func(line string) { fmt.Fprintln(s.Err, line) })
}

// quietView shows nothing.
type quietView struct{}

func (quietView) event(hub.Event, *tally) {}
func (quietView) end(*tally)              {}

// lineView writes a line every few seconds.
type lineView struct {
	say   func(line string)
	every time.Duration
	last  time.Time
}

func newLineView(say func(line string)) *lineView {
	return &lineView{say: say, every: 5 * time.Second, last: time.Now()}
}

func (v *lineView) event(e hub.Event, t *tally) {
	switch {
	case e.Kind == hub.EventRetry:
		v.say(retryLine(e))
	case e.Kind == hub.EventProgress && t.now.Sub(v.last) >= v.every:
		v.last = t.now
		line := t.progress()
		if pace := t.pace(); pace != "" {
			line += ", " + pace
		}
		v.say(line)
	}
}

func (v *lineView) end(*tally) {}

func retryLine(e hub.Event) string {
	return fmt.Sprintf("%v; trying again in %.1f s", e.Err, e.Wait.Seconds())
}

// jsonView writes an object a line: the events, with at most one of progress, for all files together, a second.
type jsonView struct {
	encoder *json.Encoder
	last    time.Time
}

func (v *jsonView) event(e hub.Event, t *tally) {
	if e.Kind != hub.EventProgress {
		_ = v.encoder.Encode(e) // a broken pipe shows when the result is written
		return
	}
	if t.now.Sub(v.last) >= time.Second {
		v.last = t.now
		v.total(t)
	}
}

func (v *jsonView) total(t *tally) {
	_ = v.encoder.Encode(struct {
		Event string  `json:"event"`
		Bytes int64   `json:"bytes"`
		Size  int64   `json:"size"`
		Speed float64 `json:"bytes_per_s"`
	}{"progress", t.bytes, t.size, t.speed()})
}

func (v *jsonView) end(t *tally) { v.total(t) }
