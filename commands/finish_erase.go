package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Erased is a deletion whose own streams are tombstoned, and that is not recorded as cleaned yet.
type Erased struct {
	ID        uuid.UUID
	ProjectID uuid.UUID
	// DataPoints are all that the deletion took. Another deletion erases those of them that are in Others.
	DataPoints, Others []uuid.UUID
	// Streams is how many streams this try tombstoned.
	Streams int
	// Waits is why the deletion cannot be recorded as cleaned yet, nil for no reason.
	Waits error
	last  eventstore.Revision
}

// ErrNotYet is a deletion that has to wait for something else.
var ErrNotYet = errors.New("the deletion has to wait")

// Erase tombstones the streams of the data points whose facts the deletion retains, in the order that lets nobody write
// them again. It waits for no other deletion: of two that overlap, each erases its own part. ok is false if nothing is left
// to do: the deletion is cleaned, or there is no such deletion.
func (l *Log) Erase(ctx context.Context, times SendTimes, deletionID uuid.UUID) (e Erased, ok bool, err error) {
	record, err := l.deletionRecord(ctx, deletionID)
	if err != nil || record.last < 0 || record.cleaned {
		return e, false, err
	}
	own := record.own
	e = Erased{ID: deletionID, last: record.last, ProjectID: record.project, DataPoints: record.dataPoints}
	if !record.fannedOut {
		return e, false, fmt.Errorf("%w: it is not fanned out", ErrNotYet)
	}
	if short, err := l.short(ctx, record); err != nil || len(short) > 0 {
		if err == nil {
			err = l.KeepFacts(ctx, times, deletionID, short)
		}
		if err == nil {
			err = fmt.Errorf("%w: facts were kept in part", ErrNotYet)
		}
		return e, false, err
	}
	var streams atomic.Int64
	open, err := l.tombstoneStages(ctx, own, &streams)
	if err != nil {
		return e, false, err
	}
	var mine []uuid.UUID
	for _, id := range e.DataPoints {
		if send, waits := own[id].waitsFor(open); waits {
			e.Waits = fmt.Errorf("%w: send %s, which holds an erased text, is not fanned out", ErrNotYet, send)
			continue
		}
		mine = append(mine, id)
	}
	err = l.each(ctx, len(mine), func(ctx context.Context, i int) error {
		id := mine[i]
		// A worker that leased the data point before its deletion may never have begun its memory stream.
		ended, err := l.tombstoneAt(ctx, stream.Name(stream.Memory, id), true)
		if err != nil {
			return fmt.Errorf("tombstone memories of %s: %w", id, err)
		}
		if ended {
			streams.Add(1)
		}
		return l.endAll(ctx, append([]string{stream.Name(stream.DataPoint, id)}, own[id].blobs...), &streams)
	})
	for _, id := range record.taken {
		if own[id] == nil {
			e.DataPoints, e.Others = append(e.DataPoints, id), append(e.Others, id)
		}
	}
	e.Streams = int(streams.Load())
	return e, err == nil, err
}

// erasing is what the retained facts say of one data point.
type erasing struct {
	retained
	blobs []string
	// sends are those that may have been batches.
	sends []uuid.UUID
}

// deletionRecord is what the stream of a deletion holds.
type deletionRecord struct {
	project    uuid.UUID
	last       eventstore.Revision // NoStream if there is none
	fannedOut  bool
	cleaned    bool
	taken      []uuid.UUID
	dataPoints []uuid.UUID // whose facts it retains, in order
	own        map[uuid.UUID]*erasing
}

// deletionRecord reads the stream of a deletion, of whose facts only what an erasure needs stays in memory.
func (l *Log) deletionRecord(ctx context.Context, deletionID uuid.UUID) (*deletionRecord, error) {
	r := &deletionRecord{last: eventstore.NoStream, fannedOut: true, own: make(map[uuid.UUID]*erasing)}
	err := l.Scan(ctx, stream.Name(stream.Deletion, deletionID), 0, func(f eventstore.Fact) (bool, error) {
		r.last = f.Revision
		switch e := f.Event.(type) {
		case *deletion.Accepted:
			r.project, r.fannedOut = e.ProjectID, false
		case *deletion.FannedOut:
			r.taken, r.fannedOut = append(r.taken, e.Deleted...), true
		case *deletion.FactsKept:
			r.project = e.ProjectID
			r.retain(e)
		case *deletion.Cleaned:
			r.cleaned = true
		}
		return true, nil
	})
	return r, err
}

func (r *deletionRecord) retain(e *deletion.FactsKept) {
	o := r.own[e.DataPoint]
	if o == nil {
		o = &erasing{}
		r.own[e.DataPoint] = o
		r.dataPoints = append(r.dataPoints, e.DataPoint)
	}
	o.add(e)
	o.blobs = append(o.blobs, e.Blobs...)
	for _, fact := range e.Facts {
		if fact.Batch || !e.Ranged() {
			o.sends = append(o.sends, fact.IngestionID)
		}
	}
}

// waitsFor returns a send of the data point that is among the open ones.
func (e *erasing) waitsFor(open map[uuid.UUID]bool) (send uuid.UUID, waits bool) {
	n := slices.IndexFunc(e.sends, func(send uuid.UUID) bool { return open[send] })
	if n < 0 {
		return uuid.Nil, false
	}
	return e.sends[n], true
}

// Tombstoned returns ErrNotYet while the stream of any of the data points is not tombstoned.
func (l *Log) Tombstoned(ctx context.Context, dataPoints []uuid.UUID) error {
	return l.each(ctx, len(dataPoints), func(ctx context.Context, i int) error {
		_, _, err := l.Store.ReadLast(ctx, stream.Name(stream.DataPoint, dataPoints[i]))
		if errors.Is(err, eventstore.ErrDeleted) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%w: data point %s, which another deletion took, is not erased", ErrNotYet, dataPoints[i])
		}
		return unavailable(err)
	})
}

// EndBlobs ends blobs of erased data points, and answers how many it ended.
func (l *Log) EndBlobs(ctx context.Context, names []string) (int, error) {
	var streams atomic.Int64
	err := l.each(ctx, len(names), func(ctx context.Context, i int) error { return l.endAll(ctx, names[i:i+1], &streams) })
	return int(streams.Load()), err
}

// SayCleaned says that a deletion is cleaned: no table and no index holds what it took any more. Where something was said of it
// meanwhile, that is another finisher's.
func (l *Log) SayCleaned(ctx context.Context, e Erased, now time.Time) error {
	name := stream.Name(stream.Deletion, e.ID)
	_, err := l.Append(ctx, name, e.last, finisherMeta(e.ID), deletion.Cleaned{ProjectID: e.ProjectID, CleanedAt: now})
	if errors.Is(err, eventstore.ErrConflict) {
		return nil
	}
	return err
}

func (l *Log) endAll(ctx context.Context, names []string, streams *atomic.Int64) error {
	for _, name := range names {
		ended, err := l.tombstone(ctx, name)
		if err != nil {
			return fmt.Errorf("erase %s: %w", name, err)
		}
		if ended {
			streams.Add(1)
		}
	}
	return nil
}

// short are the data points whose facts a crash left kept in part only.
func (l *Log) short(ctx context.Context, record *deletionRecord) ([]uuid.UUID, error) {
	ids := record.dataPoints
	whole := make([]bool, len(ids))
	err := l.each(ctx, len(ids), func(ctx context.Context, i int) (err error) {
		whole[i], err = l.whole(ctx, ids[i], record.own[ids[i]].retained)
		return err
	})
	var short []uuid.UUID
	for i, id := range ids {
		if !whole[i] {
			short = append(short, id)
		}
	}
	return short, err
}

// tombstoneStages tombstones the stages of the batches that brought erased items, if a crash after the fan-out left them: they
// hold the same text. It returns the batches that are still to be fanned out and need their stages for that; a batch that was
// given up does not.
func (l *Log) tombstoneStages(ctx context.Context, own map[uuid.UUID]*erasing, streams *atomic.Int64) (open map[uuid.UUID]bool, err error) {
	seen := make(map[uuid.UUID]bool)
	for _, o := range own {
		for _, send := range o.sends {
			seen[send] = true
		}
	}
	sends := slices.Collect(maps.Keys(seen))
	var mu sync.Mutex
	open = make(map[uuid.UUID]bool)
	err = l.each(ctx, len(sends), func(ctx context.Context, i int) error {
		events, err := l.ReadFrom(ctx, stream.Name(stream.Ingestion, sends[i]), 0)
		if err != nil || len(events) == 0 {
			return err
		}
		accepted, batch := events[0].Event.(*ingestion.Accepted)
		if !batch {
			return nil
		}
		if fannedOut(events) == nil && !givenUp(events) {
			mu.Lock()
			defer mu.Unlock()
			open[sends[i]] = true
			return nil
		}
		return l.endAll(ctx, []string{accepted.Stage.Stream}, streams)
	})
	return open, err
}
