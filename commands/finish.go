package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// ResumeBatch completes the fan-out of a committed batch that its process left. One that is complete is left as it is.
func (l *Log) ResumeBatch(ctx context.Context, id uuid.UUID) error {
	facts, err := l.ReadFrom(ctx, stream.Name(stream.Ingestion, id), 0)
	if err != nil || len(facts) == 0 || fannedOut(facts) != nil {
		return err
	}
	accepted, ok := facts[0].Event.(*ingestion.Accepted)
	if !ok {
		return fmt.Errorf("send %s is no batch", id)
	}
	_, err = l.resumeBatch(ctx, facts[0], accepted, id)
	return err
}

// ResumeDeletion completes the fan-out of a committed deletion that its process left. One that is complete is left as it is.
func (l *Log) ResumeDeletion(ctx context.Context, id uuid.UUID) error {
	facts, err := l.ReadFrom(ctx, stream.Name(stream.Deletion, id), 0)
	if err != nil || len(facts) != 1 {
		return err
	}
	accepted, ok := facts[0].Event.(*deletion.Accepted)
	if !ok {
		return nil // the deletion of one id is complete in itself
	}
	d := &removal{id: id, ingestionID: accepted.IngestionID, accepted: *accepted}
	for _, t := range accepted.Targets {
		// The fan-out reads the data point anew wherever it has moved on; where it has not, its newest revision is as it was decided.
		found, live, err := l.target(ctx, t.DataPoint)
		if err != nil {
			return err
		}
		if !live || (d.ingestionID != uuid.Nil && found.head.IngestionID != d.ingestionID) {
			found = target{dataPoint: t.DataPoint, at: eventstore.Revision(t.Decided)}
		}
		d.targets = append(d.targets, found)
	}
	_, err = l.fanOutDeletion(ctx, d)
	return err
}

// KeepFacts keeps what outlives the data points that a deletion took, in the stream of the deletion. Data points whose
// facts are kept already are passed over.
func (l *Log) KeepFacts(ctx context.Context, deletionID uuid.UUID, dataPoints []uuid.UUID) error {
	name := stream.Name(stream.Deletion, deletionID)
	known, err := l.ReadFrom(ctx, name, 0)
	if err != nil {
		return err
	}
	kept := make(map[uuid.UUID]bool)
	for _, f := range known {
		if e, ok := f.Event.(*deletion.FactsKept); ok {
			kept[e.DataPoint] = true
		}
	}
	at := eventstore.Revision(len(known) - 1)
	for _, dataPoint := range dataPoints {
		if kept[dataPoint] {
			continue
		}
		facts, err := l.facts(ctx, dataPoint)
		if errors.Is(err, eventstore.ErrDeleted) {
			continue // another deletion kept and erased them
		}
		if err != nil {
			return err
		}
		meta := event.Meta{CommandID: uuid.New(), Principal: "finisher", CorrelationID: deletionID}
		done, err := l.Append(ctx, name, at, meta, facts)
		if err != nil {
			return fmt.Errorf("keep the facts of data point %s: %w", dataPoint, err)
		}
		at = done.Revision
	}
	return nil
}

// facts gathers what outlives one data point.
func (l *Log) facts(ctx context.Context, dataPoint uuid.UUID) (deletion.FactsKept, error) {
	kept := deletion.FactsKept{DataPoint: dataPoint, Facts: []deletion.Fact{}}
	sends, err := l.ReadFrom(ctx, stream.Name(stream.DataPoint, dataPoint), 0)
	if err != nil {
		return kept, err
	}
	for _, f := range sends {
		if e, ok := f.Event.(*datapoint.Deleted); ok {
			kept.ProjectID, kept.DeletedAt = e.ProjectID, e.DeletedAt
			continue
		}
		send, standing, _ := datapoint.SendOf(f.Event)
		outcome, _ := datapoint.OutcomeOf(f.Event)
		kept.Facts = append(kept.Facts, deletion.Fact{
			IngestionID: send.IngestionID, Ordinal: send.Ordinal, Items: send.Items, RequestID: send.RequestID, AcceptedAt: send.AcceptedAt,
			Bytes: send.Bytes, CreditTenths: send.CreditTenths, Month: send.Month, Outcome: outcome.Outcome, Revision: outcome.Revision,
			Historic: standing.Historic(),
		})
		if e, ok := f.Event.(*datapoint.RevisionAccepted); ok {
			for _, text := range []*datapoint.Text{&e.Content, e.Metadata} {
				if text != nil && text.Blob != nil {
					kept.Blobs = append(kept.Blobs, text.Blob.Stream)
				}
			}
		}
	}
	derived, err := l.ReadFrom(ctx, stream.Name(stream.Memory, dataPoint), 0)
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		return kept, err
	}
	for _, f := range derived {
		if e, ok := f.Event.(*memory.Derived); ok && e.Blob != nil {
			kept.Blobs = append(kept.Blobs, e.Blob.Stream)
		}
	}
	return kept, nil
}

// Clean tombstones what a deletion took, in the order that lets nobody write it again, and says so once wait has seen that the tables
// and the index have forgotten it. The facts of all its data points are kept before.
func (l *Log) Clean(ctx context.Context, deletionID uuid.UUID, wait func(ctx context.Context, position eventstore.Position) error, now time.Time) error {
	name := stream.Name(stream.Deletion, deletionID)
	facts, err := l.ReadFrom(ctx, name, 0)
	if err != nil || len(facts) == 0 {
		return err
	}
	last := facts[len(facts)-1]
	if _, done := last.Event.(*deletion.Cleaned); done {
		return nil
	}
	var project uuid.UUID
	for _, f := range facts {
		kept, ok := f.Event.(*deletion.FactsKept)
		if !ok {
			continue
		}
		project = kept.ProjectID
		if err := l.dropStagesOf(ctx, kept.Facts); err != nil {
			return err
		}
		streams := append([]string{stream.Name(stream.Memory, kept.DataPoint), stream.Name(stream.DataPoint, kept.DataPoint)}, kept.Blobs...)
		for _, s := range streams {
			if err := l.tombstone(ctx, s); err != nil {
				return fmt.Errorf("erase %s: %w", s, err)
			}
		}
	}
	if accepted, ok := facts[0].Event.(*deletion.Accepted); ok {
		project = accepted.ProjectID
	}
	if err := wait(ctx, last.Position); err != nil {
		return err
	}
	meta := event.Meta{CommandID: uuid.New(), Principal: "finisher", CorrelationID: deletionID}
	_, err = l.Append(ctx, name, last.Revision, meta, deletion.Cleaned{ProjectID: project, CleanedAt: now})
	if errors.Is(err, eventstore.ErrConflict) {
		return nil // another finisher was first
	}
	return err
}

// dropStagesOf ends the stages of the batches that brought erased items, where a crash behind the fan-out left them: they hold
// the same text. A batch that is not fanned out needs its stage still, so the erasure waits for it.
func (l *Log) dropStagesOf(ctx context.Context, facts []deletion.Fact) error {
	for _, fact := range facts {
		events, err := l.ReadFrom(ctx, stream.Name(stream.Ingestion, fact.IngestionID), 0)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			continue
		}
		accepted, batch := events[0].Event.(*ingestion.Accepted)
		if !batch {
			continue
		}
		if fannedOut(events) == nil {
			return fmt.Errorf("send %s, which holds an erased text, is not fanned out yet", fact.IngestionID)
		}
		if err := l.tombstone(ctx, accepted.Stage.Stream); err != nil {
			return fmt.Errorf("erase stage of send %s: %w", fact.IngestionID, err)
		}
	}
	return nil
}
