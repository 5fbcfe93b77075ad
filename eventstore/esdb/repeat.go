package esdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
)

const (
	// repeatLimit is how long an append is repeated before it fails with ErrUnknown.
	repeatLimit = 30 * time.Second
	// firstRepeatPause is short, since the usual reason is an equal append that is being committed.
	firstRepeatPause   = 50 * time.Millisecond
	longestRepeatPause = 2 * time.Second
)

var (
	// errTimedOut reports an append over the shared call that timed out on the server.
	errTimedOut = errors.New("the append timed out on the server")
	// errMaybeExecuted is in the error of an append of which an earlier try may have been executed.
	errMaybeExecuted = errors.New("an earlier try may have been executed")
)

// repeat makes an append, and makes it again after a pause while isRepeatable. An append is
// idempotent: once a try was executed, each later one returns its outcome. repeat gives up after
// repeatLimit, when the context ends, and when the store is closed.
func repeat[T any](
	ctx context.Context, closed <-chan struct{}, appendOnce func(context.Context) (T, error),
) (T, error) {
	began := time.Now()
	value, err := appendOnce(ctx)
	if !isRepeatable(classify(err)) {
		return value, err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(repeatLimit))
	defer cancel()
	for pause := (backoff.Backoff{First: firstRepeatPause, Longest: longestRepeatPause}); ; {
		if backoff.Pause(ctx, pause.Next(), closed) != nil {
			return value, err
		}
		select {
		case <-closed:
			return value, err
		default:
		}
		value, err = appendOnce(ctx)
		switch why := classify(err); {
		case isRepeatable(why):
		case why == refused || why == full:
			// Nothing was written by this try, but perhaps by an earlier one.
			return value, fmt.Errorf("%w: %w", errMaybeExecuted, err)
		default:
			return value, err
		}
	}
}

// isRepeatable reports whether an append has an unknown outcome although a server can be reached. A
// deletion or a tombstone is never repeated for that: if the first try was executed, the second
// returns a conflict or a deleted stream, as if another writer had been first.
func isRepeatable(why errorKind) bool { return why == timedOut || why == leftServer }
