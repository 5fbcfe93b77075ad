// Package datapoints projects data points with their revisions, sends with their items, phases and
// counters, and the work lists of the worker, the confirmer and the finisher.
//
// Start with schema.sql, then fold.go: a page of events is folded over the rows that it touches
// (keys.go, load.go), and the changed rows are written at once (save.go). The other files are queries.
//
// The rows obey the erasure law: a rebuild after a data point was erased yields the same sends and
// items as before, from the retained facts of the deletion alone (fold_deletion.go).
package datapoints

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.DataPoints

//go:embed schema.sql
var schema string

// Projector keeps schema datapoints.
type Projector struct {
	projections.Base
	blobs eventstore.BlobReader
	// rows is the most rows of a slice, and the most of a data point that a page deletes.
	rows int
}

// New makes the projector. blobs reads the memories that did not fit into their event, to count them;
// it may be nil if there are none. The pace lets a page gather the several phases that an item passes
// within a moment, so that its row is written once.
func New(blobs eventstore.BlobReader) Projector {
	return Projector{blobs: blobs, rows: projections.SliceRows, Base: projections.NewBase(projections.Description{
		Name: Name, Version: 6, Schema: schema + projections.FollowUpTable,
		Categories: []string{
			stream.DataPoint, stream.Memory, stream.Ingestion, stream.Pipeline, stream.Deletion, stream.Blob,
			eventstore.SystemStream,
			stream.Identity, stream.Bulk, stream.Audiences, // for the blobs that they refer to
		},
		TextTables: []string{"data_points", "revisions"},
		Counted:    []string{"data_points", "revisions", "sends"},
		Pace:       projections.Pace{Min: 50 * time.Millisecond},
	})}
}

// pageRows is about the most rows that the events of a page of several name.
const pageRows = 32_768

// Fit implements projections.Bounded: a page of events that are each about all items of a send, or about many
// facts, ends before they are too many.
func (Projector) Fit(events []eventstore.DecodedEvent) int {
	rows := 0
	for n, decoded := range events {
		if rows += rowsOf(decoded.Event); rows > pageRows && n > 0 {
			return n
		}
	}
	return len(events)
}

// rowsOf is the most rows that an event names.
func rowsOf(e event.Event) int {
	switch e := e.(type) {
	case *ingestion.Accepted:
		return len(e.Items)
	case *ingestion.FannedOut:
		return len(e.Outcomes)
	case *ingestion.Failed, *ingestion.Retried:
		return limit.BatchItems
	case *deletion.FactsKept:
		return len(e.Facts)
	default:
		return 1
	}
}

// Apply folds a page of events over the rows that they touch, then writes one statement per table.
// An event that was applied before changes nothing. Apply fails on an event that contradicts an earlier
// one, and if a blob cannot be read now.
func (p Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	if len(events) == 0 {
		return nil
	}
	touched := newKeys()
	note := func(decoded eventstore.DecodedEvent) error { touched.add(decoded); return nil }
	if err := projections.Each(events, note); err != nil {
		return err
	}
	f, err := load(ctx, tx, touched, p.rows)
	if err != nil {
		return err
	}
	if err := projections.Each(events, f.apply); err != nil {
		return err
	}
	if err := p.countMemories(ctx, f.dataPoints); err != nil {
		return err
	}
	return f.save(ctx, tx)
}
