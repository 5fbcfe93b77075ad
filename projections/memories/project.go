// Package memories projects what was derived from data points, with the edges to what each memory was built from.
package memories

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// Name is the projection's name: its schema, its topic, and what answers wait for.
const Name = "memories"

//go:embed schema.sql
var schema string

// blobs reads the memories that were too big for their event.
type blobs interface {
	// ReadBlob reads a blob whole. One that is gone or damaged is an *eventstore.BlobError.
	ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error)
}

// Projector keeps schema memories.
type Projector struct {
	blobs blobs
	log   *slog.Logger
}

var _ projections.Projector = (*Projector)(nil)

// New makes the projector.
func New(blobs blobs, log *slog.Logger) *Projector { return &Projector{blobs: blobs, log: log} }

// Name implements projections.Projector.
func (*Projector) Name() string { return Name }

// Version implements projections.Projector.
func (*Projector) Version() int { return 2 }

// Families implements projections.Projector.
func (*Projector) Families() []string {
	return []string{stream.Memory, stream.DataPoint, stream.Deletion}
}

// Schema implements projections.Projector.
func (*Projector) Schema() string { return schema }

// Apply folds the page over the rows that it touches, then writes one statement per table. A revision whose blob of memories is
// gone or damaged has none: that stops no projector, and is logged. A blob that cannot be read now is an error of the event store.
func (p *Projector) Apply(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) error {
	// What cannot be decoded is told before rows are read for it.
	if err := projections.Each(facts, func(eventstore.Fact) error { return nil }); err != nil {
		return err
	}
	rows, err := load(ctx, tx, facts)
	if err != nil {
		return err
	}
	if err := projections.Each(facts, rows.apply); err != nil {
		return err
	}
	if err := p.fetch(ctx, rows.derived); err != nil {
		return err
	}
	return rows.save(ctx, tx)
}

// blobReaders is how many blobs are read at once.
const blobReaders = 4

// fetch reads the memories that are in blobs, of the derivations that are left to write.
func (p *Projector) fetch(ctx context.Context, derived map[revisionKey]*derivation) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blobReaders)
	for key, d := range derived {
		if d.event.Blob == nil {
			d.memories = d.event.Memories
			continue
		}
		group.Go(func() error {
			var err error
			d.memories, err = p.read(ctx, key.dataPoint, d.event)
			return err
		})
	}
	return group.Wait()
}

func (p *Projector) read(ctx context.Context, dataPoint uuid.UUID, e *memory.Derived) ([]memory.Memory, error) {
	data, err := p.blobs.ReadBlob(ctx, *e.Blob)
	var lost *eventstore.BlobError
	switch {
	case errors.As(err, &lost):
	case err != nil:
		return nil, fmt.Errorf("read the memories of data point %s, revision %d: %w", dataPoint, e.Revision, err)
	default:
		memories, decodeErr := memory.Decode(data)
		if decodeErr == nil {
			return memories, nil
		}
		err = decodeErr
	}
	p.log.WarnContext(ctx, "memories of a revision are lost", "data_point", dataPoint, "revision", e.Revision, "blob", e.Blob.Stream, "err", err)
	return nil, nil
}
