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
	"github.com/annals-project/annals/internal/todo"
)

// CutIdentity cuts off what stood before a removal in the stream of a record, and ends the blobs of that. It may run any number of
// times, and does nothing where that is done.
//
// The directory has passed the removal: no reader needs the text any more, and every bulk write that was committed before it is known.
func (l *Log) CutIdentity(ctx context.Context, directory Directory, r todo.Removal, now time.Time) error {
	// A row that is to stand before the removal needs what stood there to tell what it did.
	if err := l.completeRows(ctx, directory, auth.Project{ID: r.ProjectID}, []uuid.UUID{r.IdentityID}, now); err != nil {
		return err
	}
	name := stream.Name(stream.Identity, r.IdentityID)
	var blobs []string
	before := false
	err := l.Scan(ctx, name, 0, func(f eventstore.Fact) (bool, error) {
		if f.Revision >= r.Revision {
			return false, nil
		}
		before, blobs = true, append(blobs, blobsOf(f)...)
		return true, nil
	})
	if err != nil || !before {
		return err
	}
	// The blobs go first: once the events are cut off, nothing says which they were.
	if err := l.each(ctx, len(blobs), func(ctx context.Context, i int) error {
		_, err := l.tombstone(ctx, blobs[i])
		return err
	}); err != nil {
		return err
	}
	for retry := (tries{}); ; {
		err := l.Store.Truncate(ctx, name, r.Revision)
		if !errors.Is(err, eventstore.ErrUnknown) {
			return unavailable(err)
		}
		if err := retry.again(ctx, err); err != nil {
			return err
		}
	}
}

// IsCut reports whether nothing stands before a removal in the stream of its record any more.
func (l *Log) IsCut(ctx context.Context, r todo.Removal) (bool, error) {
	first, err := l.Store.Read(ctx, stream.Name(stream.Identity, r.IdentityID), 0, eventstore.Forwards, 1)
	return err == nil && (len(first) == 0 || first[0].Revision >= r.Revision), unavailable(err)
}

// SayCleared says that what stood before a removal is cut off, and gone from the disks that are ours. It may run any number of times.
func (l *Log) SayCleared(ctx context.Context, r todo.Removal, now time.Time) error {
	name := stream.Name(stream.Identity, r.IdentityID)
	for retry := (tries{}); ; {
		said, last := false, eventstore.NoStream
		err := l.Scan(ctx, name, r.Revision, func(f eventstore.Fact) (bool, error) {
			cleared, is := f.Event.(*identity.Cleared)
			said, last = is && cleared.Removal >= int64(r.Revision), f.Revision
			return !said, nil
		})
		if err != nil || said || last == eventstore.NoStream {
			return err
		}
		meta := event.Meta{CommandID: uuid.New(), Principal: "finisher", CorrelationID: r.IdentityID}
		cleared := identity.Cleared{ProjectID: r.ProjectID, Removal: int64(r.Revision), ClearedAt: now}
		_, err = l.Append(ctx, name, last, meta, cleared)
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
		if err := retry.again(ctx, err); err != nil {
			return err
		}
	}
}
