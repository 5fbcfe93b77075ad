package erasure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Tombstoned is a deletion whose own streams are tombstoned, and that is not recorded as cleaned.
type Tombstoned struct {
	ID        uuid.UUID
	ProjectID uuid.UUID
	// DataPoints are all that the deletion took. Another deletion erases those that are in Others.
	DataPoints, Others []uuid.UUID
	// Streams is how many streams this call tombstoned.
	Streams int
	// Waits is why the deletion cannot be recorded as cleaned yet, nil for no reason.
	Waits error
	last  eventstore.Revision
}

// Tombstone ends the streams of the data points whose facts a deletion retains: for each its
// memories first, so that no worker writes them after. It does not wait for other deletions: of two
// that overlap, each erases its own part. ok is false if nothing is left to do, since the deletion
// is cleaned or does not exist. The error is ErrNotYet if its fan-out or its facts were incomplete;
// in that case Tombstone retains the missing facts.
func (e *Eraser) Tombstone(ctx context.Context, deletionID uuid.UUID) (t Tombstoned, ok bool, err error) {
	record, err := e.readDeletion(ctx, deletionID)
	if err != nil || record.Events == 0 || record.Cleaned {
		return t, false, err
	}
	if record.PendingFanOut() {
		return t, false, fmt.Errorf("%w: its fan-out is pending", ErrNotYet)
	}
	if err := e.requireFacts(ctx, record); err != nil {
		return t, false, err
	}
	t = Tombstoned{ID: deletionID, ProjectID: record.ProjectID, last: record.last()}
	var streams atomic.Int64
	open, err := e.tombstoneStages(ctx, deletionID, &streams)
	if err != nil {
		return t, false, err
	}
	mine := make(map[uuid.UUID]bool)
	for _, id := range record.Retaining {
		if send, waits := open[id]; waits {
			t.Waits = fmt.Errorf("%w: send %s holds an erased text and its fan-out is pending", ErrNotYet, send)
			continue
		}
		mine[id] = true
	}
	of, err := e.ownerOf(ctx, record.ProjectID)
	if err != nil {
		return t, false, err
	}
	ids := slices.Collect(maps.Keys(mine))
	err = e.each(ctx, len(ids), func(ctx context.Context, i int) error {
		return e.tombstoneDataPoint(ctx, of, ids[i], record.Retained(ids[i]), &streams)
	})
	if err == nil {
		err = e.eachPart(ctx, deletionID, func(ctx context.Context, part *deletion.FactsKept) error {
			if !mine[part.DataPoint] {
				return nil
			}
			n, err := e.tombstoneBlobs(ctx, part.Blobs)
			streams.Add(int64(n))
			return err
		})
	}
	t.Others = record.Others()
	t.DataPoints = slices.Concat(record.Retaining, t.Others)
	t.Streams = int(streams.Load())
	return t, err == nil, err
}

// eachPart calls do with every part of the retained facts of a deletion, within stepTimeout. There may be
// thousands, each with as many names as an event holds.
func (e *Eraser) eachPart(
	ctx context.Context, deletionID uuid.UUID, do func(context.Context, *deletion.FactsKept) error,
) error {
	name := stream.Name(stream.Deletion, deletionID)
	return e.Journal.Scan(ctx, name, 0, func(f eventstore.DecodedEvent) (bool, error) {
		part, is := f.Event.(*deletion.FactsKept)
		if !is {
			return true, nil
		}
		err := e.bounded(ctx, func(ctx context.Context) error { return do(ctx, part) })
		return err == nil, err
	})
}

// requireFacts retains the facts that a crash left, and returns ErrNotYet if there were any.
func (e *Eraser) requireFacts(ctx context.Context, record *deletionRecord) error {
	incomplete, err := e.incompleteFacts(ctx, record)
	if err != nil || len(incomplete) == 0 {
		return err
	}
	if err := e.retainFacts(ctx, record, incomplete); err != nil {
		return err
	}
	return fmt.Errorf("%w: its facts were incomplete", ErrNotYet)
}

// tombstoneDataPoint tombstones a data point and its memories, not its blobs. A worker that leased the
// data point before its deletion may not have begun its memory stream, or may have written it since
// the facts were retained.
func (s Streams) tombstoneDataPoint(
	ctx context.Context, of Owner, id uuid.UUID, r *deletion.Retained, streams *atomic.Int64,
) error {
	memories, err := s.end(ctx, of, stream.Name(stream.Memory, id), eventstore.Revision(r.NextMemory))
	if err != nil {
		return err
	}
	dataPoint, err := s.end(ctx, of, stream.Name(stream.DataPoint, id), eventstore.Revision(r.Next))
	for _, done := range []bool{memories, dataPoint} {
		if done {
			streams.Add(1)
		}
	}
	return err
}

// tombstoneBlobs tombstones blobs of erased data points and returns how many it ended.
func (s Streams) tombstoneBlobs(ctx context.Context, names []string) (int, error) {
	var streams atomic.Int64
	err := s.each(ctx, len(names), func(ctx context.Context, i int) error {
		return s.tombstoneBlob(ctx, names[i], &streams)
	})
	return int(streams.Load()), err
}

// tombstoneBlob tombstones a blob and counts it if it was not.
func (s Streams) tombstoneBlob(ctx context.Context, name string, streams *atomic.Int64) error {
	done, err := s.Journal.TombstoneBlob(ctx, name)
	if err != nil {
		return fmt.Errorf("tombstone %s: %w", name, err)
	}
	if done {
		streams.Add(1)
	}
	return nil
}

// seenSends is how many sends tombstoneStages remembers, so that it reads a batch with many erased items
// about once.
const seenSends = 65_536

// tombstoneStages tombstones the stages of batches with erased items, which hold the same text, if a
// crash left them after the fan-out. It returns the data points of batches whose fan-out is pending, each
// with such a batch, since that needs its stage. An abandoned batch does not need its stage.
func (e *Eraser) tombstoneStages(
	ctx context.Context, deletionID uuid.UUID, streams *atomic.Int64,
) (open map[uuid.UUID]uuid.UUID, err error) {
	open = make(map[uuid.UUID]uuid.UUID)
	seen := make(map[uuid.UUID]bool) // whether the fan-out of a send is pending
	err = e.eachPart(ctx, deletionID, func(ctx context.Context, part *deletion.FactsKept) error {
		var fresh []uuid.UUID
		for _, send := range part.BatchSends() {
			if pending, known := seen[send]; !known {
				fresh, seen[send] = append(fresh, send), false
			} else if pending {
				open[part.DataPoint] = send
			}
		}
		var mu sync.Mutex
		err := e.each(ctx, len(fresh), func(ctx context.Context, i int) error {
			send, err := e.readSend(ctx, fresh[i])
			if err != nil || send.Batch == nil {
				return err
			}
			if send.PendingFanOut() && !send.Abandoned() {
				mu.Lock()
				defer mu.Unlock()
				seen[fresh[i]], open[part.DataPoint] = true, fresh[i]
				return nil
			}
			return e.tombstoneBlob(ctx, send.Batch.Stage.Stream, streams)
		})
		if len(seen) > seenSends {
			clear(seen)
		}
		return err
	})
	return open, err
}

// requireTombstoned returns ErrNotYet if the stream of any of the data points is not tombstoned.
func (s Streams) requireTombstoned(ctx context.Context, dataPoints []uuid.UUID) error {
	return s.each(ctx, len(dataPoints), func(ctx context.Context, i int) error {
		_, _, err := s.Journal.Store.ReadLast(ctx, stream.Name(stream.DataPoint, dataPoints[i]))
		if errors.Is(err, eventstore.ErrDeleted) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%w: another deletion has yet to erase data point %s", ErrNotYet, dataPoints[i])
		}
		return err
	})
}
