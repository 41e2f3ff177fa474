package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	maxAttempts = 8 // in a row, none of which got anywhere
	maxBackoff  = 30 * time.Second
)

// again calls try until it succeeds, fails for good, or has failed maxAttempts times in a row without progress. In
// between it waits, longer each time, or as long as the server asks.
func (c *client) again(ctx context.Context, try func() (progress bool, err error)) error {
	failures := 0
	for {
		progress, err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if progress {
			failures = 0
		}
		failures++
		temporary, asked := temporary(err)
		if !temporary {
			return err
		}
		if failures == maxAttempts {
			return fmt.Errorf("given up after %d attempts: %w", failures, err)
		}
		if asked > maxRetryAfter {
			return fmt.Errorf("%w: the server asks to wait %v", err, asked.Round(time.Second))
		}
		wait := max(backoffAfter(failures, c.backoff), asked)
		c.retrying(err, wait)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// backoffAfter doubles with every failure, within maxBackoff, and differs a little so that clients do not come together.
func backoffAfter(failures int, first time.Duration) time.Duration {
	wait := min(first<<(failures-1), maxBackoff)
	return wait*3/4 + rand.N(wait/2+1)
}
