package main

import (
	"fmt"
	"io"
	"math"
	"path"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"mlxcel/runtime/hub"
)

const (
	minBar   = 4 << 20 // bytes of a file that is worth a bar of its own
	nameCols = 36
)

// bars draws a bar for each large file that is coming, and one for all together.
type bars struct {
	progress *mpb.Progress
	files    map[string]*mpb.Bar
	total    *mpb.Bar

	mu   sync.Mutex
	pace string // for the bars' own goroutine
}

func newBars(terminal io.Writer) *bars {
	return &bars{progress: mpb.New(mpb.WithOutput(terminal), mpb.WithWidth(30)), files: map[string]*mpb.Bar{}}
}

func (b *bars) event(e hub.Event, t *tally) {
	switch e.Kind {
	case hub.EventFile:
		b.add(e, t)
	case hub.EventProgress:
		if bar := b.files[e.File]; bar != nil && t.files[e.File] != nil {
			bar.SetCurrent(t.files[e.File].bytes)
		}
		b.setPace(t.pace())
	case hub.EventDone:
		if bar := b.files[e.File]; bar != nil {
			bar.Abort(true) // of no effect on one that is full and gone
			delete(b.files, e.File)
		}
	case hub.EventRetry:
		fmt.Fprintln(b.progress, retryLine(e))
	case hub.EventWait:
		fmt.Fprintf(b.progress, "%s: another mlxcel or Python is downloading it; waiting\n", e.File)
	}
	if b.total != nil {
		b.total.SetCurrent(t.bytes)
	}
}

// add shows a file, whose bytes of an earlier time count at once.
func (b *bars) add(e hub.Event, t *tally) {
	if b.total == nil {
		b.total = b.progress.AddBar(0, mpb.BarPriority(math.MaxInt), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name("all files", decor.WC{W: nameCols, C: decor.DindentRight})),
			mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), decor.CountersKiloByte("  % .1f of % .1f"),
				decor.Any(func(decor.Statistics) string { return b.getPace() })))
	}
	b.total.SetTotal(t.size+1, false) // it is never full before the end
	if e.Size < minBar || b.files[e.File] != nil {
		return
	}
	bar := b.progress.AddBar(e.Size, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(shorten(path.Base(e.File)), decor.WC{W: nameCols, C: decor.DindentRight})),
		mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), decor.CountersKiloByte("  % .1f of % .1f")))
	bar.SetCurrent(e.Bytes)
	b.files[e.File] = bar
}

// shorten leaves out the middle of a name that is too long for its column.
func shorten(name string) string {
	if runes := []rune(name); len(runes) >= nameCols {
		half := nameCols/2 - 1
		return string(runes[:half]) + "…" + string(runes[len(runes)-half:])
	}
	return name
}

func (b *bars) setPace(pace string) {
	if pace != "" {
		pace = "  " + pace
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pace = pace
}

func (b *bars) getPace() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pace
}

func (b *bars) end(*tally) {
	for _, bar := range b.files {
		bar.Abort(true)
	}
	if b.total != nil {
		b.total.Abort(true)
	}
	b.progress.Wait()
}
