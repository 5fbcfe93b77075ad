package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

const (
	// partFacts and partBlobs are what one event holds of the facts of a data point: less than half of an append.
	partFacts = 1000
	partBlobs = 1000
	// keepSize is how many data points' facts are gathered before they are appended: a part of each.
	keepSize = 64
)

// SendTimes reads since when sends have been searchable according to a pipeline.Searchable that its
// projection has applied.
type SendTimes interface {
	SearchableSince(ctx context.Context, sends []uuid.UUID) (map[uuid.UUID]time.Time, error)
}

// KeepFacts retains what outlives the data points that a deletion took, in the stream of the deletion: a part of each at a
// time, so that a data point may have any number of sends. A call that is repeated goes on after the parts that are stored.
//
// times must have passed the deletion of the data points and, after that, the head of the log at
// some time: a rebuilt projection knows of earlier erasures only once it has passed the retained
// facts.
func (l *Log) KeepFacts(ctx context.Context, times SendTimes, deletionID uuid.UUID, dataPoints []uuid.UUID) error {
	name := stream.Name(stream.Deletion, deletionID)
	record, err := l.deletionRecord(ctx, deletionID)
	if err != nil {
		return err
	}
	at := record.last
	left := make([]*retaining, len(dataPoints))
	for i, id := range dataPoints {
		left[i] = &retaining{dataPoint: id}
		if own := record.own[id]; own != nil {
			left[i].retained = own.retained
		}
	}
	for len(left) > 0 {
		some := left[:min(keepSize, len(left))]
		parts := make([][]deletion.FactsKept, len(some))
		err := l.each(ctx, len(some), func(ctx context.Context, i int) error {
			var err error
			parts[i], err = l.nextFacts(ctx, times, some[i])
			if errors.Is(err, eventstore.ErrDeleted) { // another deletion retained and erased them
				some[i].complete = true
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		if at, err = l.appendFacts(ctx, name, at, deletionID, slices.Concat(parts...)); err != nil {
			return fmt.Errorf("retain facts of deletion %s: %w", deletionID, err)
		}
		left = append(slices.DeleteFunc(slices.Clone(some), func(r *retaining) bool { return r.complete }), left[len(some):]...)
	}
	return nil
}

// retained is up to where the facts of a data point are stored.
type retained struct {
	next     int64 // stream revision of the data point
	complete bool
	// items are those that events without a range retain.
	items map[retainedItem]bool
}

type retainedItem struct {
	send    uuid.UUID
	ordinal int
}

func (r *retained) add(e *deletion.FactsKept) {
	if e.Ranged() {
		r.next, r.complete = max(r.next, e.To), r.complete || e.Complete
		return
	}
	if r.items == nil {
		r.items = make(map[retainedItem]bool)
	}
	for _, fact := range e.Facts {
		r.items[retainedItem{fact.IngestionID, fact.Ordinal}] = true
	}
}

// retaining is a data point whose facts are being retained.
type retaining struct {
	retained
	dataPoint uuid.UUID
	deleted   *datapoint.Deleted // nil before the first part
	end       int64              // stream revision of its deletion
	newest    int
}

// whole reports whether all facts of a deleted data point are retained: each of its events is one, but for the last, which
// deleted it. If its stream is tombstoned they were.
func (l *Log) whole(ctx context.Context, dataPoint uuid.UUID, r retained) (bool, error) {
	if r.complete {
		return true, nil
	}
	last, ok, err := l.Store.ReadLast(ctx, stream.Name(stream.DataPoint, dataPoint))
	if errors.Is(err, eventstore.ErrDeleted) {
		return true, nil
	}
	return ok && len(r.items) > 0 && int(last.Revision) == len(r.items), unavailable(err)
}

// appendFacts appends in as few appends as the store takes.
func (l *Log) appendFacts(ctx context.Context, name string, at eventstore.Revision, operation uuid.UUID, parts []deletion.FactsKept) (eventstore.Revision, error) {
	events := make([]event.Event, len(parts))
	for i, p := range parts {
		events[i] = p
	}
	proposed, err := l.Codec.EncodeAll(events, finisherMeta(operation))
	if err != nil {
		return at, err
	}
	for len(proposed) > 0 {
		n, size := 0, 0
		for n < len(proposed) {
			if size += proposed[n].Size(); n > 0 && size > eventstore.MaxAppend {
				break
			}
			n++
		}
		done, err := l.AppendEncoded(ctx, name, at, proposed[:n])
		if err != nil {
			return at, err
		}
		at, proposed = done.Revision, proposed[n:]
	}
	return at, nil
}

// nextFacts gathers the next part of what outlives a data point, with the last part its blobs.
func (l *Log) nextFacts(ctx context.Context, times SendTimes, r *retaining) ([]deletion.FactsKept, error) {
	if r.deleted == nil {
		whole, err := l.whole(ctx, r.dataPoint, r.retained)
		if err != nil || whole {
			r.complete = whole
			return nil, err
		}
		if err := l.beginFacts(ctx, r); err != nil {
			return nil, err
		}
	}
	part := deletion.FactsKept{
		ProjectID: r.deleted.ProjectID, DataPoint: r.dataPoint, DeletedAt: r.deleted.DeletedAt, Facts: []deletion.Fact{},
		From: r.next, To: r.end, Newest: r.newest,
	}
	err := l.Scan(ctx, stream.Name(stream.DataPoint, r.dataPoint), eventstore.Revision(r.next), func(f eventstore.Fact) (bool, error) {
		send, standing, is := datapoint.SendOf(f.Event)
		if !is { // its deletion
			return false, nil
		}
		outcome, _ := datapoint.OutcomeOf(f.Event)
		author, err := l.authorID(ctx, send.ProjectID, send.Author)
		if err != nil {
			return false, err
		}
		part.Facts = append(part.Facts, deletion.Fact{
			IngestionID: send.IngestionID, Ordinal: send.Ordinal, Items: send.Items, RequestID: send.RequestID, AcceptedAt: send.AcceptedAt,
			Bytes: send.Bytes, CreditTenths: send.CreditTenths, Month: send.Month, Outcome: outcome.Outcome, Revision: outcome.Revision,
			Historic: standing.Historic(), AuthorID: author, Batch: send.Commit != 0,
		})
		part.Blobs = append(part.Blobs, blobsOf(f)...)
		part.To = int64(f.Revision) + 1
		return len(part.Facts) < partFacts && len(part.Blobs) < partBlobs, nil
	})
	if err == nil {
		err = addTimes(ctx, times, part.Facts)
	}
	if err != nil {
		return nil, err
	}
	if r.next = part.To; r.next < r.end {
		return []deletion.FactsKept{part}, nil
	}
	r.complete = true
	return l.lastFacts(ctx, part)
}

// addTimes adds to the facts of items that created a revision since when their sends were
// searchable. A watermark ends no send that lost such an item, so a time known after the deletion
// was known at it.
func addTimes(ctx context.Context, times SendTimes, facts []deletion.Fact) error {
	var sends []uuid.UUID
	for _, fact := range facts {
		if fact.Brought() {
			sends = append(sends, fact.IngestionID)
		}
	}
	if len(sends) == 0 {
		return nil
	}
	since, err := times.SearchableSince(ctx, sends)
	if err != nil {
		return err
	}
	for i := range facts {
		if facts[i].Brought() {
			facts[i].SearchableAt = since[facts[i].IngestionID]
		}
	}
	return nil
}

// beginFacts reads how a data point ended.
func (l *Log) beginFacts(ctx context.Context, r *retaining) error {
	name := stream.Name(stream.DataPoint, r.dataPoint)
	last, ok, err := l.Last(ctx, name)
	if err != nil {
		return err
	}
	deleted, is := last.Event.(*datapoint.Deleted)
	if !ok || !is {
		return fmt.Errorf("retain facts of data point %s: it is not deleted", r.dataPoint)
	}
	r.deleted, r.end = deleted, int64(last.Revision)
	if last.Revision == 0 { // it was deleted before its batch was fanned out
		return nil
	}
	before, _, err := l.At(ctx, name, last.Revision-1)
	if err != nil {
		return err
	}
	_, standing, _ := datapoint.SendOf(before.Event)
	r.newest = standing.Head().Revision
	return nil
}

// lastFacts adds the blobs of the memories of a data point to its last part. Those that are too many are in further parts.
func (l *Log) lastFacts(ctx context.Context, part deletion.FactsKept) ([]deletion.FactsKept, error) {
	parts := []deletion.FactsKept{part}
	err := l.Scan(ctx, stream.Name(stream.Memory, part.DataPoint), 0, func(f eventstore.Fact) (bool, error) {
		last := &parts[len(parts)-1]
		if len(last.Blobs) >= partBlobs {
			more := part
			more.From, more.Facts, more.Blobs = part.To, []deletion.Fact{}, nil
			parts = append(parts, more)
			last = &parts[len(parts)-1]
		}
		last.Blobs = append(last.Blobs, blobsOf(f)...)
		return true, nil
	})
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		return nil, err
	}
	parts[len(parts)-1].Complete = true
	return parts, nil
}
