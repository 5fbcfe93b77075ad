// Package datapoints projects data points with their revisions, the sends that brought them with their phases and counters,
// and the to-do lists of the pipeline and the finisher.
//
// Its rows obey the erasure law: what a client reads of sends and items follows from the kept facts of a deletion alone
// once the streams of a data point are erased (fold_deletion.go).
package datapoints

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// Name is the projection's name: its schema, its topic, and what answers wait for.
const Name = "datapoints"

//go:embed schema.sql
var schema string

// blobs reads the memories that were too big for their event, for they are counted.
type blobs interface {
	// ReadBlob reads a blob whole. One that is gone or damaged is an *eventstore.BlobError.
	ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error)
}

// Projector keeps schema datapoints.
type Projector struct{ blobs blobs }

var _ projections.Projector = Projector{}

// New makes the projector. Where no memories lie in blobs, nil is enough to read them with.
func New(blobs blobs) Projector { return Projector{blobs: blobs} }

// Name implements projections.Projector.
func (Projector) Name() string { return Name }

// Version implements projections.Projector.
func (Projector) Version() int { return 10 }

// Families implements projections.Projector.
func (Projector) Families() []string {
	return []string{
		stream.DataPoint, stream.Memory, stream.Ingestion, stream.Pipeline, stream.Deletion, stream.Blob,
		eventstore.SystemStream,
		stream.Identity, stream.Bulk, stream.Audiences, // they refer to blobs
	}
}

// Schema implements projections.Projector.
func (Projector) Schema() string { return schema }

// Apply folds the page over the rows that it touches, then writes one statement per table. Facts that were applied before
// change nothing. It fails on an event that it does not know or that contradicts what was committed, and where the event store
// cannot tell now what a blob holds.
func (r Projector) Apply(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	touched := newKeys()
	if err := projections.Each(facts, func(f eventstore.Fact) error { touched.add(f); return nil }); err != nil {
		return err
	}
	p, err := load(ctx, tx, touched)
	if err != nil {
		return err
	}
	if err := projections.Each(facts, p.apply); err != nil {
		return err
	}
	if err := r.countDerived(ctx, p.points); err != nil {
		return err
	}
	return p.save(ctx, tx)
}
