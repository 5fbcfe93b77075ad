package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	// keepSize is how many data points' facts are gathered before they are appended.
	keepSize = 256
)

// KeepFacts keeps what outlives the data points that a deletion took, in the stream of the deletion. Data points whose
// facts are kept already are passed over.
func (l *Log) KeepFacts(ctx context.Context, deletionID uuid.UUID, dataPoints []uuid.UUID) error {
	name := stream.Name(stream.Deletion, deletionID)
	known, err := l.ReadFrom(ctx, name, 0)
	if err != nil {
		return err
	}
	kept := keptIn(known)
	at := eventstore.Revision(len(known) - 1)
	left := make([]uuid.UUID, 0, len(dataPoints))
	for _, id := range dataPoints {
		whole := false
		if n, some := kept[id]; some {
			if whole, err = l.whole(ctx, id, n); err != nil {
				return err
			}
		}
		if !whole {
			left = append(left, id)
		}
	}
	for some := range slices.Chunk(left, keepSize) {
		gathered := make([][]deletion.FactsKept, len(some))
		err := each(ctx, len(some), func(ctx context.Context, i int) error {
			var err error
			gathered[i], err = l.facts(ctx, some[i])
			if errors.Is(err, eventstore.ErrDeleted) {
				return nil // another deletion kept and erased them
			}
			return err
		})
		if err != nil {
			return err
		}
		if at, err = l.appendFacts(ctx, name, at, deletionID, slices.Concat(gathered...)); err != nil {
			return fmt.Errorf("keep facts of deletion %s: %w", deletionID, err)
		}
	}
	return nil
}

// keptIn are the data points of which a deletion keeps facts, and of how many items.
func keptIn(facts []eventstore.Fact) map[uuid.UUID]int {
	type item struct {
		send    uuid.UUID
		ordinal int
	}
	seen := make(map[uuid.UUID]map[item]bool)
	for _, f := range facts {
		e, ok := f.Event.(*deletion.FactsKept)
		if !ok {
			continue
		}
		if seen[e.DataPoint] == nil {
			seen[e.DataPoint] = make(map[item]bool)
		}
		for _, fact := range e.Facts {
			seen[e.DataPoint][item{fact.IngestionID, fact.Ordinal}] = true
		}
	}
	kept := make(map[uuid.UUID]int, len(seen))
	for id, items := range seen {
		kept[id] = len(items)
	}
	return kept
}

// whole reports whether facts of so many items are all that a deleted data point has: each of its events is one, but for the last,
// which deleted it. Of one whose stream is ended they were.
func (l *Log) whole(ctx context.Context, dataPoint uuid.UUID, items int) (bool, error) {
	last, ok, err := l.Store.ReadLast(ctx, stream.Name(stream.DataPoint, dataPoint))
	if errors.Is(err, eventstore.ErrDeleted) {
		return true, nil
	}
	return ok && int(last.Revision) == items, unavailable(err)
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

// facts gathers what outlives one data point.
func (l *Log) facts(ctx context.Context, dataPoint uuid.UUID) ([]deletion.FactsKept, error) {
	whole := deletion.FactsKept{DataPoint: dataPoint, Facts: []deletion.Fact{}}
	sends, err := l.ReadFrom(ctx, stream.Name(stream.DataPoint, dataPoint), 0)
	if err != nil {
		return nil, err
	}
	for _, f := range sends {
		if e, ok := f.Event.(*datapoint.Deleted); ok {
			whole.ProjectID, whole.DeletedAt = e.ProjectID, e.DeletedAt
			continue
		}
		send, standing, _ := datapoint.SendOf(f.Event)
		outcome, _ := datapoint.OutcomeOf(f.Event)
		author, err := l.authorID(ctx, send.ProjectID, send.Author)
		if err != nil {
			return nil, err
		}
		whole.Facts = append(whole.Facts, deletion.Fact{
			IngestionID: send.IngestionID, Ordinal: send.Ordinal, Items: send.Items, RequestID: send.RequestID, AcceptedAt: send.AcceptedAt,
			Bytes: send.Bytes, CreditTenths: send.CreditTenths, Month: send.Month, Outcome: outcome.Outcome, Revision: outcome.Revision,
			Historic: standing.Historic(), AuthorID: author,
		})
		whole.Blobs = append(whole.Blobs, blobsOf(f)...)
	}
	derived, err := l.ReadFrom(ctx, stream.Name(stream.Memory, dataPoint), 0)
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		return nil, err
	}
	for _, f := range derived {
		whole.Blobs = append(whole.Blobs, blobsOf(f)...)
	}
	return split(whole), nil
}

// split cuts facts that are too many for one event. Each part has the fact of the revision that stood at the end.
func split(whole deletion.FactsKept) []deletion.FactsKept {
	if len(whole.Facts) <= partFacts && len(whole.Blobs) <= partBlobs {
		return []deletion.FactsKept{whole}
	}
	facts, blobs := slices.Collect(slices.Chunk(whole.Facts, partFacts)), slices.Collect(slices.Chunk(whole.Blobs, partBlobs))
	parts := make([]deletion.FactsKept, max(len(facts), len(blobs)))
	standing := whole.Standing()
	n := slices.IndexFunc(whole.Facts, func(f deletion.Fact) bool { return f.Revision == standing && f.Brought() && !f.Historic })
	for i := range parts {
		parts[i] = deletion.FactsKept{ProjectID: whole.ProjectID, DataPoint: whole.DataPoint, DeletedAt: whole.DeletedAt, Facts: []deletion.Fact{}}
		if i < len(facts) {
			parts[i].Facts = slices.Clone(facts[i])
		}
		if n >= 0 && n/partFacts != i {
			parts[i].Facts = append(parts[i].Facts, whole.Facts[n])
		}
		if i < len(blobs) {
			parts[i].Blobs = blobs[i]
		}
	}
	return parts
}
