package commands

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/todo"
)

// StageKeep is how long an unreferenced stage is kept once it holds text of an erased data point.
// It is longer than any command runs; a commit that is later all the same is not made (see
// referWithin).
const StageKeep = 10 * time.Minute

// Sweep tombstones a blob that nothing refers to, if the streams confirm it at this time: its deadline is over, it is a stage
// that is of no more use, or its owner is erased; and no event of its owner refers to it. swept is false if it stays, or is ended
// already.
//
// The caller has seen, from the projection at the head of the log, that no batch is to be fanned out that may still refer to it.
func (l *Log) Sweep(ctx context.Context, b todo.Blob, now time.Time) (swept bool, err error) {
	first, ok, err := l.At(ctx, b.Stream, 0)
	if errors.Is(err, eventstore.ErrDeleted) || (err == nil && !ok) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	opened, ok := first.Event.(*blob.Opened)
	if !ok {
		return false, &eventstore.BlobError{Stream: b.Stream, Detail: "it begins with " + first.Type}
	}
	// Read the revision before the references are looked for: see the rules at referWithin.
	last, ok, err := l.Store.ReadLast(ctx, b.Stream)
	if errors.Is(err, eventstore.ErrDeleted) || (err == nil && !ok) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	finished, referred, err := l.stageOf(ctx, opened.Owner, b.Stream)
	if err != nil || referred {
		return false, err
	}
	if !finished {
		if finished, referred, err = l.rowsOf(ctx, opened.Owner, b.Stream); err != nil || referred {
			return false, err
		}
	}
	if !finished && !now.Before(opened.Deadline.Add(StageKeep-BlobKeep)) {
		if finished, err = l.holdsDeleted(ctx, opened.Holds); err != nil {
			return false, err
		}
	}
	for _, family := range []string{stream.DataPoint, stream.Memory, stream.Identity, stream.Audiences} {
		used := false
		err := l.Scan(ctx, stream.Name(family, opened.Owner), 0, func(f eventstore.Fact) (bool, error) {
			used = refers(f, b.Stream)
			return !used, nil
		})
		if errors.Is(err, eventstore.ErrDeleted) {
			// What is erased refers to nothing. The memories are tombstoned before their data point.
			finished = finished || family == stream.DataPoint
			continue
		}
		if err != nil {
			return false, err
		}
		if used {
			return false, nil
		}
	}
	if !finished && now.Before(opened.Deadline) {
		return false, nil
	}
	_, err = l.Store.Tombstone(ctx, b.Stream, last.Revision)
	if errors.Is(err, eventstore.ErrDeleted) || errors.Is(err, eventstore.ErrConflict) {
		return false, nil // another swept it, or its writer holds it
	}
	return err == nil, err
}

// holdsDeleted reports whether any of the data points of a stage was deleted.
func (l *Log) holdsDeleted(ctx context.Context, dataPoints []uuid.UUID) (bool, error) {
	var deleted atomic.Bool
	err := l.each(ctx, len(dataPoints), func(ctx context.Context, i int) error {
		t, err := l.target(ctx, dataPoints[i])
		if t.gone {
			deleted.Store(true)
		}
		return err
	})
	return deleted.Load(), err
}

// stageOf looks at a blob as the stage of a batch: finished if no fan-out of that needs it any more, referred if one does.
func (l *Log) stageOf(ctx context.Context, send uuid.UUID, name string) (finished, referred bool, err error) {
	facts, err := l.ReadFrom(ctx, stream.Name(stream.Ingestion, send), 0)
	if err != nil || len(facts) == 0 {
		return false, false, err
	}
	accepted, ok := facts[0].Event.(*ingestion.Accepted)
	if !ok {
		return false, false, nil
	}
	if accepted.Stage.Stream != name { // of another try of the same key, which was not the first
		return true, false, nil
	}
	if fannedOut(facts) != nil {
		return true, false, nil
	}
	deleted := false
	if givenUp(facts) {
		if _, deleted, err = l.Last(ctx, stream.Name(stream.Deletion, endOf(send))); err != nil {
			return false, false, err
		}
	}
	return deleted, !deleted, nil
}

// rowsOf is stageOf for the rows of a bulk write of identities.
func (l *Log) rowsOf(ctx context.Context, bulk uuid.UUID, name string) (finished, referred bool, err error) {
	facts, err := l.ReadFrom(ctx, stream.Name(stream.Bulk, bulk), 0)
	if err != nil || len(facts) == 0 {
		return false, false, err
	}
	accepted, ok := facts[0].Event.(*identity.BulkAccepted)
	if !ok || accepted.Rows.Stream != name {
		return false, false, nil
	}
	return len(facts) > 1, len(facts) == 1, nil
}

// refers reports whether an event of an owner refers to a blob.
func refers(f eventstore.Fact, name string) bool { return slices.Contains(blobsOf(f), name) }

// blobsOf names the blobs that an event refers to.
func blobsOf(f eventstore.Fact) []string {
	var names []string
	switch e := f.Event.(type) {
	case *datapoint.RevisionAccepted:
		for _, text := range []*datapoint.Text{&e.Content, e.Metadata} {
			if text != nil {
				names = referred(names, text.Blob)
			}
		}
	case *memory.Derived:
		names = referred(names, e.Blob)
	case *identity.TraitsReplaced:
		names = referred(names, e.Record.Traits.Blob)
	case *identity.TraitsMerged:
		names = referred(names, e.Record.Traits.Blob, e.Patch.Blob)
	case *identity.BulkRowApplied:
		if e.Record != nil {
			names = referred(names, e.Record.Traits.Blob)
		}
	case *audience.Put:
		names = referred(names, e.MembersBlob, e.RuleBlob)
	}
	return names
}

// referred adds the names of the blobs that are referred to, of which each may be none.
func referred(names []string, refs ...*blob.Ref) []string {
	for _, ref := range refs {
		if ref != nil {
			names = append(names, ref.Stream)
		}
	}
	return names
}
