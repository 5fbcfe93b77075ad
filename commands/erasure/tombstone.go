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
	open, err := e.tombstoneStages(ctx, record, &streams)
	if err != nil {
		return t, false, err
	}
	var mine []uuid.UUID
	for _, id := range record.Retaining {
		sends := record.Retained(id).Sends
		if n := slices.IndexFunc(sends, func(send uuid.UUID) bool { return open[send] }); n >= 0 {
			t.Waits = fmt.Errorf("%w: send %s holds an erased text and its fan-out is pending", ErrNotYet, sends[n])
			continue
		}
		mine = append(mine, id)
	}
	err = e.each(ctx, len(mine), func(ctx context.Context, i int) error {
		return e.tombstoneDataPoint(ctx, mine[i], record.Retained(mine[i]).Blobs, &streams)
	})
	t.Others = record.Others()
	t.DataPoints = slices.Concat(record.Retaining, t.Others)
	t.Streams = int(streams.Load())
	return t, err == nil, err
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

func (s Streams) tombstoneDataPoint(ctx context.Context, id uuid.UUID, blobs []string, streams *atomic.Int64) error {
	// A worker that leased the data point before its deletion may not have begun its memory stream.
	done, err := s.Journal.TombstoneEvenEmpty(ctx, stream.Name(stream.Memory, id))
	if err != nil {
		return fmt.Errorf("tombstone memories of %s: %w", id, err)
	}
	if done {
		streams.Add(1)
	}
	return s.tombstoneAll(ctx, slices.Concat([]string{stream.Name(stream.DataPoint, id)}, blobs), streams)
}

// tombstoneAll tombstones streams one after the other and counts those that it ended.
func (s Streams) tombstoneAll(ctx context.Context, names []string, streams *atomic.Int64) error {
	for _, name := range names {
		done, err := s.Journal.Tombstone(ctx, name)
		if err != nil {
			return fmt.Errorf("tombstone %s: %w", name, err)
		}
		if done {
			streams.Add(1)
		}
	}
	return nil
}

// tombstoneBlobs tombstones blobs of erased data points and returns how many it ended.
func (s Streams) tombstoneBlobs(ctx context.Context, names []string) (int, error) {
	var streams atomic.Int64
	err := s.each(ctx, len(names), func(ctx context.Context, i int) error {
		return s.tombstoneAll(ctx, names[i:i+1], &streams)
	})
	return int(streams.Load()), err
}

// tombstoneStages tombstones the stages of batches with erased items, which hold the same text, if a
// crash left them after the fan-out. It returns the batches whose fan-out is pending, since that
// needs their stages. An abandoned batch does not need its stage.
func (s Streams) tombstoneStages(
	ctx context.Context, record *deletionRecord, streams *atomic.Int64,
) (open map[uuid.UUID]bool, err error) {
	seen := make(map[uuid.UUID]bool)
	for _, id := range record.Retaining {
		for _, send := range record.Retained(id).Sends {
			seen[send] = true
		}
	}
	sends := slices.Collect(maps.Keys(seen))
	var mu sync.Mutex
	open = make(map[uuid.UUID]bool)
	err = s.each(ctx, len(sends), func(ctx context.Context, i int) error {
		send, err := s.readSend(ctx, sends[i])
		if err != nil || send.Batch == nil {
			return err
		}
		if send.PendingFanOut() && !send.Abandoned() {
			mu.Lock()
			defer mu.Unlock()
			open[sends[i]] = true
			return nil
		}
		return s.tombstoneAll(ctx, []string{send.Batch.Stage.Stream}, streams)
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
