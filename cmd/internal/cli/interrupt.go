package cli

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
)

// handlers is how many parts of the program deal with interrupts right now. Where none does, an interrupt ends the
// process: see endOnInterrupt.
var handlers atomic.Int32

// HandlesInterrupts says that the caller deals with interrupts, until done is called.
func HandlesInterrupts() (done func()) {
	handlers.Add(1)
	return func() { handlers.Add(-1) }
}

// Interruptible returns a context that ends at the first interrupt, as by Ctrl-C. At a second one the process ends at
// once with ExitInterrupted, after cleanup if that is not nil. After stop, interrupts do what they did before.
func Interruptible(ctx context.Context, cleanup func()) (_ context.Context, stop func()) {
	done := HandlesInterrupts()
	ctx, cancel := context.WithCancel(ctx)
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, os.Interrupt)
	stopped := make(chan struct{})
	go func() {
		select {
		case <-interrupts:
			cancel()
		case <-stopped:
			return
		}
		select {
		case <-interrupts:
			if cleanup != nil {
				cleanup()
			}
			Exit(ExitInterrupted)
		case <-stopped:
		}
	}()
	return ctx, func() {
		done()
		signal.Stop(interrupts)
		close(stopped)
		cancel()
	}
}
