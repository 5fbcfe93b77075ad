package erasure

import (
	"context"
	"errors"
	"time"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/work"
)

// RecordCleaned records that a deletion is cleaned: no table, no index and no file of the service
// holds what it took. It does nothing if another finisher appended to the deletion since.
func (s Streams) RecordCleaned(ctx context.Context, t Tombstoned, now time.Time) error {
	name := stream.Name(stream.Deletion, t.ID)
	// Tombstone checked the rest of the state, which may be big.
	state := deletion.State{Events: int64(t.last) + 1, ProjectID: t.ProjectID}
	_, err := s.Journal.Append(ctx, name, t.last, event.NewMeta(finisherName, now).Of(t.ID), state.Clean(now)...)
	if errors.Is(err, eventstore.ErrConflict) {
		return nil
	}
	return err
}

// RecordCleared records that what an identity held before a removal is truncated and purged. It
// appends at most one event for a removal.
func (s Streams) RecordCleared(ctx context.Context, r work.Removal, now time.Time) error {
	name := stream.Name(stream.Identity, r.IdentityID)
	return backoff.Retry(ctx, eventstore.ErrConflict, func() error {
		recorded, last := false, eventstore.NoStream
		err := s.Journal.Scan(ctx, name, r.Revision, func(f eventstore.DecodedEvent) (bool, error) {
			cleared, is := f.Event.(*identity.Cleared)
			recorded, last = is && cleared.Removal >= int64(r.Revision), f.Revision
			return !recorded, nil
		})
		if err != nil || recorded || last == eventstore.NoStream {
			return err
		}
		cleared := identity.Cleared{ProjectID: r.ProjectID, Removal: int64(r.Revision), ClearedAt: now}
		_, err = s.Journal.Append(ctx, name, last, event.NewMeta(finisherName, now).Of(r.IdentityID), cleared)
		return err
	})
}
