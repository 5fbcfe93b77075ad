// Package backoff pauses between the tries of one task. All packages that may import it use it for
// their pauses.
package backoff

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Pause waits until a time has passed, early is closed, or the context ends. Only then it fails,
// with the cause of the context. early may be nil.
func Pause(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-early:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Backoff is the pause after a failed try. Each pause is twice as long as the one before, up to
// Longest, and is shortened at random by up to a half, so that processes that failed together do
// not try again together. It is not safe for concurrent use.
type Backoff struct {
	First, Longest time.Duration
	last           time.Duration
}

// Reset makes the next pause the first one again.
func (b *Backoff) Reset() { b.last = 0 }

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.First), b.Longest)
	return b.last - rand.N(b.last/2+1)
}

// Wait pauses. It returns early with the cause of the context if that ends.
func (b *Backoff) Wait(ctx context.Context) error { return Pause(ctx, b.Next(), nil) }

// Conflict returns the backoff of a writer that another one precedes.
func Conflict() Backoff { return Backoff{First: 10 * time.Millisecond, Longest: time.Second} }

// maxTries bounds the tries of one task, while another process conflicts or the result of an append
// is unknown. After that the next round of the caller continues.
const maxTries = 10

// Tries counts and paces the tries of one task. The zero value has made none.
type Tries struct {
	done  int
	pause Backoff
}

// Again waits before the next try, after one that failed with err. It fails after maxTries, or if
// the context ends.
func (t *Tries) Again(ctx context.Context, err error) error {
	if t.done++; t.done == 1 {
		t.pause = Conflict()
	}
	if t.done >= maxTries {
		return fmt.Errorf("failed after %d tries: %w", t.done, err)
	}
	if ended := t.pause.Wait(ctx); ended != nil {
		return fmt.Errorf("%w, after %d tries: %w", ended, t.done, err)
	}
	return nil
}

// Retry calls try until it returns another error than retriable, within the bounds of Tries.
func Retry(ctx context.Context, retriable error, try func() error) error {
	for tries := (Tries{}); ; {
		err := try()
		if !errors.Is(err, retriable) {
			return err
		}
		if err := tries.Again(ctx, err); err != nil {
			return err
		}
	}
}
