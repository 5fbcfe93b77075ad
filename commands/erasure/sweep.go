package erasure

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
)

// Sweep tombstones one page of blobs that may be swept at a time, and returns how many.
func (e *Eraser) Sweep(ctx context.Context, now time.Time) (swept int, err error) {
	found, err := e.unreferenced(ctx, now)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	// A batch or bulk write with a pending fan-out may refer to a blob. Only the head of the log
	// shows that there is none.
	if err := e.waitHead(ctx, projection.DataPoints); err != nil {
		return 0, err
	}
	if found, err = e.unreferenced(ctx, now); err != nil {
		return 0, err
	}
	if swept, err = e.sweepBlobs(ctx, found, now); err != nil || swept == 0 {
		return swept, err
	}
	return swept, e.waitHead(ctx, projection.DataPoints)
}

func (e *Eraser) unreferenced(ctx context.Context, now time.Time) ([]work.Blob, error) {
	return e.Blobs.UnreferencedBlobs(ctx, now, now.Add(blob.Keep-blob.StageKeep), listSize)
}

func (e *Eraser) sweepBlobs(ctx context.Context, found []work.Blob, now time.Time) (int, error) {
	var group errgroup.Group
	group.SetLimit(roundWidth)
	var swept atomic.Int64
	errs := make([]error, len(found))
	for i, b := range found {
		group.Go(func() error {
			errs[i] = e.bounded(ctx, func(ctx context.Context) error {
				done, err := e.SweepBlob(ctx, b.Stream, now)
				if done {
					swept.Add(1)
				}
				return err
			})
			return nil
		})
	}
	_ = group.Wait() // each error is in errs
	var denied DeniedError
	errs = slices.DeleteFunc(errs, denied.add)
	return int(swept.Load()), denied.join(errs...)
}

// SweepBlob tombstones a blob if its owner's streams confirm at a time that nothing refers to it, and
// that its deadline has passed, its stage is not needed any more, or its owner is erased. swept is
// false if the blob stays, or is tombstoned already.
//
// The data points projection has shown, at the head of the log, that no pending fan-out refers to the
// blob.
func (s Streams) SweepBlob(ctx context.Context, name string, now time.Time) (swept bool, err error) {
	first, ok, err := s.Journal.At(ctx, name, 0)
	if errors.Is(err, eventstore.ErrDeleted) || (err == nil && !ok) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	opened, ok := first.Event.(*blob.Opened)
	if !ok {
		return false, &eventstore.BlobError{Stream: name, Detail: "it begins with " + first.Type}
	}
	// Read the revision before the references: the rules of commands/engine depend on this order.
	last, ok, err := s.Journal.Store.ReadLast(ctx, name)
	if errors.Is(err, eventstore.ErrDeleted) || (err == nil && !ok) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if unused, err := s.isUnused(ctx, name, opened, now); err != nil || !unused {
		return false, err
	}
	_, err = s.Journal.Store.Tombstone(ctx, name, last.Revision)
	if errors.Is(err, eventstore.ErrDeleted) || errors.Is(err, eventstore.ErrConflict) {
		return false, nil // another finisher swept it, or its writer holds it
	}
	return err == nil, err
}

// isUnused reports whether nothing refers to a blob, and nothing will.
func (s Streams) isUnused(ctx context.Context, name string, opened *blob.Opened, now time.Time) (bool, error) {
	finished, referenced, err := s.stageUse(ctx, opened.Owner, name)
	if err != nil || referenced {
		return false, err
	}
	if !finished {
		if finished, referenced, err = s.rowsUse(ctx, opened.Owner, name); err != nil || referenced {
			return false, err
		}
	}
	if !finished && !now.Before(opened.Deadline.Add(blob.StageKeep-blob.Keep)) {
		if finished, err = s.holdsDeleted(ctx, opened.Holds); err != nil {
			return false, err
		}
	}
	for _, category := range []string{stream.DataPoint, stream.Memory, stream.Identity, stream.Audiences} {
		referenced, err := s.refers(ctx, stream.Name(category, opened.Owner), name)
		if errors.Is(err, eventstore.ErrDeleted) {
			// A tombstoned stream refers to nothing. The memories are tombstoned before their data
			// point.
			finished = finished || category == stream.DataPoint
			continue
		}
		if err != nil || referenced {
			return false, err
		}
	}
	return finished || !now.Before(opened.Deadline), nil
}

// holdsDeleted reports whether any of the data points of a stage is deleted.
func (s Streams) holdsDeleted(ctx context.Context, dataPoints []uuid.UUID) (bool, error) {
	var deleted atomic.Bool
	err := s.each(ctx, len(dataPoints), func(ctx context.Context, i int) error {
		last, ok, err := s.Journal.Last(ctx, stream.Name(stream.DataPoint, dataPoints[i]))
		if errors.Is(err, eventstore.ErrDeleted) {
			deleted.Store(true)
			return nil
		}
		if err != nil || !ok {
			return err
		}
		if _, _, live := datapoint.SendOf(last.Event); !live {
			deleted.Store(true)
		}
		return nil
	})
	return deleted.Load(), err
}

// stageUse reads how a send uses a blob as its stage. finished: its batch no longer needs it;
// referenced: its batch still does. Both are false if the blob is not a stage of a batch.
func (s Streams) stageUse(ctx context.Context, send uuid.UUID, name string) (finished, referenced bool, err error) {
	state, err := s.readSend(ctx, send)
	if err != nil || state.Batch == nil {
		return false, false, err
	}
	// Another try of the same idempotency key may have committed the batch with its own stage.
	if state.Batch.Stage.Stream != name || !state.PendingFanOut() {
		return true, false, nil
	}
	deleted := false
	if state.Abandoned() {
		_, deleted, err = s.Journal.Last(ctx, stream.Name(stream.Deletion, stream.SendDeletionID(send)))
		if err != nil {
			return false, false, err
		}
	}
	return deleted, !deleted, nil
}

// rowsUse is stageUse for the rows of a bulk write of identities.
func (s Streams) rowsUse(ctx context.Context, bulk uuid.UUID, name string) (finished, referenced bool, err error) {
	events, err := s.Journal.ReadFrom(ctx, stream.Name(stream.Bulk, bulk), 0)
	if err != nil || len(events) == 0 {
		return false, false, err
	}
	accepted, ok := events[0].Event.(*identity.BulkAccepted)
	if !ok || accepted.Rows.Stream != name {
		return false, false, nil
	}
	return len(events) > 1, len(events) == 1, nil
}

// refers reports whether any event of a stream refers to a blob.
func (s Streams) refers(ctx context.Context, name, blobName string) (found bool, err error) {
	err = s.Journal.Scan(ctx, name, 0, func(f eventstore.DecodedEvent) (bool, error) {
		found = slices.Contains(blobsOf(f), blobName)
		return !found, nil
	})
	return found, err
}

// blobsOf returns the streams of the blobs that an event refers to.
func blobsOf(f eventstore.DecodedEvent) []string {
	var refs []*blob.Ref
	switch e := f.Event.(type) {
	case *datapoint.RevisionAccepted:
		refs = append(refs, e.Content.Blob)
		if e.Metadata != nil {
			refs = append(refs, e.Metadata.Blob)
		}
	case *memory.Derived:
		refs = append(refs, e.Blob)
	case *identity.TraitsReplaced:
		refs = append(refs, e.Record.Traits.Blob)
	case *identity.TraitsMerged:
		refs = append(refs, e.Record.Traits.Blob, e.Patch.Blob)
	case *identity.BulkRowApplied:
		if e.Record != nil {
			refs = append(refs, e.Record.Traits.Blob)
		}
	case *audience.Put:
		refs = append(refs, e.MembersBlob, e.RuleBlob)
	}
	var names []string
	for _, ref := range refs {
		if ref != nil {
			names = append(names, ref.Stream)
		}
	}
	return names
}
