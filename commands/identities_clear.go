package commands

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// ClearIdentity cuts off what stood before a removal in the stream of a record, ends the blobs of that, and says so. It may run any
// number of times, and does nothing for a removal that is cleared already.
//
// The directory has passed the removal: no reader needs the text any more, and every bulk write that was committed before it is known.
func (l *Log) ClearIdentity(ctx context.Context, directory Directory, project, id uuid.UUID, removal eventstore.Revision, now time.Time) error {
	// A row that is to stand before the removal needs what stood there to tell what it did.
	if err := l.completeRows(ctx, directory, auth.Project{ID: project}, []uuid.UUID{id}, now); err != nil {
		return err
	}
	name := stream.Name(stream.Identity, id)
	facts, err := l.ReadFrom(ctx, name, 0)
	if err != nil {
		return err
	}
	var blobs []string
	for _, f := range facts {
		if f.Revision < removal {
			blobs = append(blobs, blobsOf(f)...)
		}
		if cleared, is := f.Event.(*identity.Cleared); is && cleared.Removal == int64(removal) {
			return nil
		}
	}
	// The blobs go first: once the events are cut off, nothing says which they were.
	if err := each(ctx, len(blobs), func(ctx context.Context, i int) error {
		_, err := l.tombstone(ctx, blobs[i])
		return err
	}); err != nil {
		return err
	}
	for {
		err := l.Store.Truncate(ctx, name, removal)
		if err == nil {
			break
		}
		if !errors.Is(err, eventstore.ErrUnknown) || ctx.Err() != nil {
			return unavailable(err)
		}
	}
	cleared := identity.Cleared{ProjectID: project, Removal: int64(removal), ClearedAt: now}
	meta := event.Meta{CommandID: uuid.New(), Principal: "finisher", CorrelationID: id}
	for {
		last, _, err := l.Last(ctx, name)
		if err != nil {
			return err
		}
		if _, err = l.Append(ctx, name, last.Revision, meta, cleared); !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
		meta.CommandID = uuid.New()
	}
}
