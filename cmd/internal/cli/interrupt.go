package cli

import (
	"context"
	"os"
	"os/signal"
)

// Interruptible returns a context that ends at the first interrupt, as by Ctrl-C. At a second one the process ends at
// once with ExitInterrupted, after cleanup if that is not nil. After stop, interrupts do what they did before.
func Interruptible(ctx context.Context, cleanup func()) (_ context.Context, stop func()) {
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
		signal.Stop(interrupts)
		close(stopped)
		cancel()
	}
}
