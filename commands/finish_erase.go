package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Erased is a deletion whose streams are ended and that is not said to be cleaned yet.
type Erased struct {
	ID         uuid.UUID
	ProjectID  uuid.UUID
	DataPoints []uuid.UUID
	// Streams is how many streams this try ended.
	Streams int
	last    eventstore.Revision
}

// ErrNotYet is a deletion that cannot be cleaned before something else is done.
var ErrNotYet = errors.New("the deletion has to wait")

// Erase ends the streams of what a deletion took, in the order that lets nobody write it again. The facts of all its data
// points are kept before. ok is false where nothing is left to do: it is cleaned, or there is no such deletion.
func (l *Log) Erase(ctx context.Context, deletionID uuid.UUID) (e Erased, ok bool, err error) {
	facts, err := l.ReadFrom(ctx, stream.Name(stream.Deletion, deletionID), 0)
	if err != nil || len(facts) == 0 {
		return e, false, err
	}
	last := facts[len(facts)-1]
	if _, done := last.Event.(*deletion.Cleaned); done {
		return e, false, nil
	}
	e = Erased{ID: deletionID, last: last.Revision}
	blobs := make(map[uuid.UUID][]string)
	var kept []deletion.Fact
	for _, f := range facts {
		switch f := f.Event.(type) {
		case *deletion.Accepted:
			e.ProjectID = f.ProjectID
		case *deletion.FactsKept:
			e.ProjectID = f.ProjectID
			if _, seen := blobs[f.DataPoint]; !seen {
				e.DataPoints = append(e.DataPoints, f.DataPoint)
			}
			blobs[f.DataPoint] = append(blobs[f.DataPoint], f.Blobs...)
			kept = append(kept, f.Facts...)
		}
	}
	if err := l.complete(ctx, facts); err != nil {
		return e, false, err
	}
	if short, err := l.short(ctx, facts); err != nil || len(short) > 0 {
		if err == nil {
			err = l.KeepFacts(ctx, deletionID, short)
		}
		if err == nil {
			err = fmt.Errorf("%w: facts were kept in part", ErrNotYet)
		}
		return e, false, err
	}
	var streams atomic.Int64
	if err := l.dropStagesOf(ctx, kept, &streams); err != nil {
		return e, false, err
	}
	err = each(ctx, len(e.DataPoints), func(ctx context.Context, i int) error {
		id := e.DataPoints[i]
		return l.endAll(ctx, append([]string{stream.Name(stream.Memory, id), stream.Name(stream.DataPoint, id)}, blobs[id]...), &streams)
	})
	e.Streams = int(streams.Load())
	return e, err == nil, err
}

// EndBlobs ends blobs of erased data points, and answers how many it ended.
func (l *Log) EndBlobs(ctx context.Context, names []string) (int, error) {
	var streams atomic.Int64
	err := each(ctx, len(names), func(ctx context.Context, i int) error { return l.endAll(ctx, names[i:i+1], &streams) })
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

// complete is ErrNotYet while facts of what the deletion took are not kept. What another deletion took before it is that one's to
// keep and to end, and this one waits for that.
func (l *Log) complete(ctx context.Context, facts []eventstore.Fact) error {
	kept := keptIn(facts)
	var open []uuid.UUID
	fanned := true
	for _, f := range facts {
		switch f := f.Event.(type) {
		case *deletion.Accepted:
			fanned = false
		case *deletion.FannedOut:
			fanned = true
			for _, id := range f.Deleted {
				if _, some := kept[id]; !some {
					open = append(open, id)
				}
			}
		}
	}
	if !fanned {
		return fmt.Errorf("%w: it is not fanned out", ErrNotYet)
	}
	return each(ctx, len(open), func(ctx context.Context, i int) error {
		_, _, err := l.Store.ReadLast(ctx, stream.Name(stream.DataPoint, open[i]))
		if errors.Is(err, eventstore.ErrDeleted) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%w: the facts of data point %s are not kept", ErrNotYet, open[i])
		}
		return err
	})
}

// short are the data points whose facts a crash left kept in part only.
func (l *Log) short(ctx context.Context, facts []eventstore.Fact) ([]uuid.UUID, error) {
	kept := keptIn(facts)
	ids := slices.Collect(maps.Keys(kept))
	whole := make([]bool, len(ids))
	err := each(ctx, len(ids), func(ctx context.Context, i int) (err error) {
		whole[i], err = l.whole(ctx, ids[i], kept[ids[i]])
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

// dropStagesOf ends the stages of the batches that brought erased items, where a crash behind the fan-out left them: they hold
// the same text. A batch that is not fanned out needs its stage still, so the erasure waits for it; one that was given up does not.
func (l *Log) dropStagesOf(ctx context.Context, facts []deletion.Fact, streams *atomic.Int64) error {
	seen := make(map[uuid.UUID]bool, len(facts))
	var sends []uuid.UUID
	for _, fact := range facts {
		if !seen[fact.IngestionID] {
			seen[fact.IngestionID] = true
			sends = append(sends, fact.IngestionID)
		}
	}
	return each(ctx, len(sends), func(ctx context.Context, i int) error {
		events, err := l.ReadFrom(ctx, stream.Name(stream.Ingestion, sends[i]), 0)
		if err != nil || len(events) == 0 {
			return err
		}
		accepted, batch := events[0].Event.(*ingestion.Accepted)
		if !batch {
			return nil
		}
		if fannedOut(events) == nil && !givenUp(events) {
			return fmt.Errorf("%w: send %s, which holds an erased text, is not fanned out", ErrNotYet, sends[i])
		}
		return l.endAll(ctx, []string{accepted.Stage.Stream}, streams)
	})
}
