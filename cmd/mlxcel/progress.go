package main

import (
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress returns a function that draws how far the loading of weights is, and one that removes the drawing.
func progress(terminal io.Writer) (update func(done, total int64), remove func()) {
	bars := mpb.New(mpb.WithOutput(terminal), mpb.WithWidth(40))
	var bar *mpb.Bar
	update = func(done, total int64) {
		if bar == nil {
			bar = bars.AddBar(total, mpb.BarRemoveOnComplete(),
				mpb.PrependDecorators(decor.Name("loading ")),
				mpb.AppendDecorators(decor.Percentage(), decor.CountersKiloByte("  % .0f of % .0f")))
		}
		bar.SetCurrent(done)
	}
	remove = func() {
		if bar != nil {
			bar.Abort(true) // of no effect on a bar that is complete and gone
		}
		bars.Wait()
	}
	return update, remove
}
