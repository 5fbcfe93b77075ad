package erasure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// purgeTimeout bounds one purge: it may rewrite all files of a large store.
const purgeTimeout = 30 * time.Minute

// tables removes dead rows from the tables that hold customer text.
type tables interface {
	// Vacuum returns how many tables it vacuumed.
	Vacuum(ctx context.Context) (tables int, err error)
}

// callLog removes the stored bodies of calls.
type callLog interface {
	// Blank removes the bodies of all calls that carried or returned one of the data points.
	Blank(ctx context.Context, dataPoints []uuid.UUID) error
}

// index removes deleted documents from the files of the search index.
type index interface {
	// Purge returns once no file holds anything of the documents that were deleted before, and how
	// many parts of the index it went through. A part without changes costs nothing.
	Purge(ctx context.Context) (parts int, err error)
}

// scavenger removes tombstoned and truncated events from the files of the event store.
type scavenger interface {
	Scavenge(ctx context.Context) error
}

// Cluster is the Store of an Eraser whose event store is a cluster, which its operator scavenges.
var Cluster scavenger = cluster{}

type cluster struct{}

// Scavenge implements scavenger. It leaves the files to the cluster.
func (cluster) Scavenge(context.Context) error { return nil }

// Purge removes from the disk what the deletions and identities of a round held, and defers those
// that have to wait for something else.
func (e *Eraser) Purge(ctx context.Context, r *Round, report *Report) error {
	holders := []string{projection.DataPoints, projection.Memories, projection.RecallIndex, projection.Directory}
	holders = append(append(holders, projection.Access), e.ExtraProjections...)
	if err := e.waitHead(ctx, holders...); err != nil {
		return err
	}
	waits, err := e.purgeRest(ctx, r.deletions, report)
	if err != nil {
		return err
	}
	if err := e.purgeDisk(ctx, report); err != nil {
		return err
	}
	for i := range r.deletions {
		d := &r.deletions[i]
		if d.waits = d.waits || waits[d.ID]; d.waits {
			e.deferred[d.ID] = true
		} else {
			delete(e.deferred, d.ID)
		}
	}
	return nil
}

// AwaitFollowUps waits, for stepTimeout at most, until what was deleted has left the tables. A deletion of
// which more is left then waits for a later round.
func (e *Eraser) AwaitFollowUps(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for p := (backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}); ; {
		left, err := e.Blobs.HasFollowUps(ctx)
		if err != nil || !left || p.Wait(limited) != nil {
			return err
		}
	}
}

// purgeDisk removes what is dead from tables, index and store.
func (e *Eraser) purgeDisk(ctx context.Context, report *Report) error {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	tables, err := e.Tables.Vacuum(ctx)
	if err != nil {
		return fmt.Errorf("vacuum tables: %w", err)
	}
	report.Tables = max(report.Tables, tables)
	parts, err := e.Index.Purge(ctx)
	if err != nil {
		return fmt.Errorf("purge the index: %w", err)
	}
	report.Indexes = max(report.Indexes, parts)
	if err := e.Store.Scavenge(ctx); err != nil {
		return fmt.Errorf("scavenge the store: %w", err)
	}
	if report.Store = StoreScavenged; e.Store == Cluster {
		report.Store = StoreCluster
	}
	return nil
}

// purgeRest tombstones the blobs of erased data points that were written until their streams ended,
// and the stages of abandoned batches. It returns the deletions that have to wait: for a batch with a
// pending fan-out, for a stage that may still be committed, or for rows that are deleted in slices.
func (e *Eraser) purgeRest(
	ctx context.Context, deletions []openDeletion, report *Report,
) (waits map[uuid.UUID]bool, err error) {
	waits = make(map[uuid.UUID]bool)
	deletionsOf, projects := make(map[uuid.UUID][]uuid.UUID), make(map[uuid.UUID]uuid.UUID)
	for _, d := range deletions {
		for _, p := range d.DataPoints {
			deletionsOf[p], projects[p] = append(deletionsOf[p], d.ID), d.ProjectID
		}
	}
	wait := func(dataPoint uuid.UUID) {
		for _, id := range deletionsOf[dataPoint] {
			waits[id] = true
		}
	}
	for ids := range slices.Chunk(slices.Collect(maps.Keys(deletionsOf)), listSize) {
		if e.Calls != nil {
			// A data point may have been sent, or returned, by very many calls.
			err := e.within(ctx, purgeTimeout, func(ctx context.Context) error { return e.Calls.Blank(ctx, ids) })
			if err != nil {
				return nil, err
			}
		}
		names, err := e.Blobs.BlobsOf(ctx, ids)
		if err != nil {
			return nil, err
		}
		batches, err := e.Blobs.BatchesOf(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, b := range batches {
			switch {
			case !b.Abandoned:
				for _, p := range b.DataPoints {
					wait(p)
				}
			case b.Stage != "":
				names = append(names, b.Stage)
			}
		}
		of := make([]uuid.UUID, len(ids))
		for i, id := range ids {
			of[i] = projects[id]
		}
		copied, err := e.Blobs.Copied(ctx, of, ids)
		if err != nil {
			return nil, err
		}
		for p := range copied {
			wait(p)
		}
		followed, err := e.Blobs.FollowedUp(ctx, ids)
		if err != nil {
			return nil, err
		}
		for p := range followed {
			wait(p)
		}
		err = e.bounded(ctx, func(ctx context.Context) error {
			n, err := e.tombstoneBlobs(ctx, names)
			report.Streams += n
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return waits, nil
}

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
