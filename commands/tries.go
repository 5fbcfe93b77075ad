package commands

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// mostTries is how often work that nobody waits for is tried in one go, while another process is faster or the store does not say
	// what came of it. Then it is left to the next round.
	mostTries = 10
	// The pause before the second try, which doubles with each, and the longest; each is shortened by up to a half at random, so that
	// processes that got in each other's way do not meet again.
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// tries counts and paces the tries of one piece of work.
type tries struct{ done int }

// again waits before another try after one that failed with err. It is an error once there were enough of them, or the context ended.
func (t *tries) again(ctx context.Context, err error) error {
	if t.done++; t.done >= mostTries {
		return fmt.Errorf("given up after %d tries: %w", t.done, err)
	}
	pause := min(firstPause<<(t.done-1), longestPause)
	timer := time.NewTimer(pause - rand.N(pause/2)) //nolint:gosec // a pause is no secret
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w, after %d tries: %w", context.Cause(ctx), t.done, err)
	}
}
