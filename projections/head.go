package projections

import (
	"context"
	"time"

	"github.com/annals-project/annals/eventstore"
)

// headWait bounds the wait for what the log holds.
const headWait = time.Minute

// Head waits until projections show what was answered before a query.
type Head struct {
	Log interface {
		Head(ctx context.Context) (eventstore.Position, error)
	}
	Waiter interface {
		Wait(ctx context.Context, position eventstore.Position, projections ...string) error
	}
}

// Await waits, at most for a minute, until the named projections have applied what the log holds at the call. The fault
// is service-unavailable.
func (h Head) Await(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, headWait)
	defer cancel()
	head, err := h.Log.Head(ctx)
	if err != nil {
		return err
	}
	return h.Waiter.Wait(ctx, head, names...)
}
