package models

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
		b.grow(t.size)
	case hub.EventProgress, hub.EventResume:
		b.move(e.File, *t.files[e.File])
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

// grow says how much all files together are.
func (b *bars) grow(size int64) {
	if b.total == nil {
		b.total = b.progress.AddBar(0, mpb.BarPriority(math.MaxInt), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(barName("all files")),
			mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), decor.CountersKiloByte("  % .1f of % .1f"),
				decor.Any(func(decor.Statistics) string { return b.getPace() })))
	}
	b.total.SetTotal(size+1, false) // it is never full before the end
}

// move shows how far a file is, if it is large.
func (b *bars) move(name string, f fileTally) {
	if f.size < minBar {
		return
	}
	if b.files[name] == nil {
		b.files[name] = b.progress.AddBar(f.size, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(barName(path.Base(name))),
			mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), decor.CountersKiloByte("  % .1f of % .1f")))
	}
	b.files[name].SetCurrent(f.bytes)
}

func barName(name string) decor.Decorator {
	return decor.Name(shorten(name), decor.WC{W: nameCols, C: decor.DindentRight})
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
