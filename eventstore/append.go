package eventstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// AppendUntilKnown repeats an append that got no answer, with the same events and so the same ids, until it is answered
// or the context ends. What it then answers is ErrUnknown still, together with why the context ended.
func AppendUntilKnown(ctx context.Context, store Store, stream string, expected Revision, events []Proposed) (Appended, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		done, err := store.Append(ctx, stream, expected, events)
		if !errors.Is(err, ErrUnknown) {
			return done, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Appended{}, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		if ctx.Err() != nil {
			return Appended{}, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
