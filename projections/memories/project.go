// Package memories projects the memories of every captured revision, with edges from each memory to
// its inputs.
package memories

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.Memories

//go:embed schema.sql
var schema string

// Projector keeps schema memories.
type Projector struct {
	projections.Base
	blobs  eventstore.BlobReader
	logger *slog.Logger
	rows   int // the most memories of a slice, and of a data point that a page deletes
}

// New makes the projector. No caller waits for memories, but their rows must exist by the time the
// search index finds them: so the longest pace is below that of the index.
func New(blobs eventstore.BlobReader, logger *slog.Logger) *Projector {
	p := &Projector{blobs: blobs, logger: logger, rows: projections.SliceRows}
	p.Base = projections.NewBase(projections.Description{
		Name: Name, Version: 1, Categories: []string{stream.Memory, stream.DataPoint, stream.Deletion},
		Schema:     schema + projections.FollowUpTable,
		TextTables: []string{"memories"},
		Counted:    []string{"memories", "captured"},
		Pace:       projections.Pace{Min: 60 * time.Millisecond, Max: 180 * time.Millisecond},
	})
	return p
}

// Apply folds a page of events over the rows that they touch, then writes one statement per table. If
// the blob of a revision's memories is missing or damaged, the revision has none: this is logged and
// does not stop the projector. A blob that cannot be read now is an error.
func (p *Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	// Report an event that cannot be decoded before rows are read for the page.
	if err := projections.Each(events, func(eventstore.DecodedEvent) error { return nil }); err != nil {
		return err
	}
	f, err := load(ctx, tx, events)
	if err != nil {
		return err
	}
	if len(events) > 0 {
		f.most, f.last = p.rows, events[len(events)-1].Position
	}
	if err := projections.Each(events, f.apply); err != nil {
		return err
	}
	if err := p.readMemories(ctx, f.derived); err != nil {
		return err
	}
	return f.save(ctx, tx)
}

// blobReaders is how many blobs are read concurrently.
const blobReaders = 4

// readMemories fills in the memories of the derivations to write: from the event, or from its blob.
func (p *Projector) readMemories(ctx context.Context, derived map[revisionKey]*derivation) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blobReaders)
	for key, d := range derived {
		if d.event.Blob == nil {
			d.memories = d.event.Memories
			continue
		}
		group.Go(func() error {
			var err error
			d.memories, err = p.readBlob(ctx, key.dataPoint, d.event)
			return err
		})
	}
	return group.Wait()
}

// readBlob reads the memories of a revision. It returns none if the blob is missing or damaged.
func (p *Projector) readBlob(ctx context.Context, dataPoint uuid.UUID, e *memory.Derived) ([]memory.Memory, error) {
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
	p.logger.WarnContext(ctx, "memories of a revision are lost",
		"data_point", dataPoint, "revision", e.Revision, "blob", e.Blob.Stream, "err", err)
	return nil, nil
}
