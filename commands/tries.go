package commands

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// mostTries bounds the tries of background work in one go, while another process conflicts or
	// the result of an append is unknown. After that the next round continues.
	mostTries = 10
	// firstPause precedes the second try. Each further pause is twice as long, up to longestPause.
	// Each is shortened at random by up to a half, so that processes that conflicted do not meet
	// again.
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// tries counts and paces the tries of one task.
type tries struct{ done int }

// again waits before another try after one that failed with err. It fails after mostTries, or if
// the context ends.
func (t *tries) again(ctx context.Context, err error) error {
	if t.done++; t.done >= mostTries {
		return fmt.Errorf("given up after %d tries: %w", t.done, err)
	}
	pause := min(firstPause<<(t.done-1), longestPause)
	timer := time.NewTimer(pause - rand.N(pause/2)) //nolint:gosec // a pause is not a secret
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w, after %d tries: %w", context.Cause(ctx), t.done, err)
	}
}
