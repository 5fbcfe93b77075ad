// Package directory projects who is known in each project, and which audiences they belong to.
//
// Its rows obey the erasure law: the removal of a record is the last that its stream says of it, so what came before may be missing.
package directory

import (
	"context"
	_ "embed"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// Name is the projection's name: its schema, its topic, and what answers wait for.
const Name = "directory"

//go:embed schema.sql
var schema string

// blobs reads what was too big for its event: traits, rules, lists of members, and the rows of bulk writes.
type blobs interface {
	// ReadBlob reads a blob whole. One that is gone or damaged is an *eventstore.BlobError.
	ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error)
}

// Projector keeps schema directory.
type Projector struct {
	blobs      blobs
	namespaces stream.Namespaces
	log        *slog.Logger
	rules      *ruleCache
}

var (
	_ projections.Projector = (*Projector)(nil)
	_ projections.Paced     = (*Projector)(nil)
)

// New makes the projector. The namespaces derive the directory records of authors.
func New(blobs blobs, namespaces stream.Namespaces, log *slog.Logger) *Projector {
	return &Projector{blobs: blobs, namespaces: namespaces, log: log, rules: newRuleCache()}
}

// Name implements projections.Projector.
func (*Projector) Name() string { return Name }

// Version implements projections.Projector.
func (*Projector) Version() int { return 6 }

// Families implements projections.Projector.
func (*Projector) Families() []string {
	return []string{stream.Registry, stream.Identity, stream.Bulk, stream.Audiences, stream.DataPoint, stream.Deletion, stream.Usage}
}

// Schema implements projections.Projector.
func (*Projector) Schema() string { return schema }

// Pace implements projections.Paced. Most of what comes by is who wrote a data point, which nobody waits for: under load a page that
// says no more than that, every 50 ms, took about a tenth of the processor time of an ingest. Who waits in another process waits so much longer.
func (*Projector) Pace() time.Duration { return 250 * time.Millisecond }

// Apply folds the page over the rows that it touches, writes one statement per table, and counts anew who belongs to the audiences
// that were put or recomputed. Facts that were applied before change nothing. A blob that is gone or damaged stands for no
// traits, no members or a rule that nobody meets: that stops no projector, and is logged. A blob that cannot be read now is an error of
// the event store.
func (p *Projector) Apply(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) error {
	g, err := p.load(ctx, tx, facts)
	if err != nil {
		return err
	}
	if err := projections.Each(facts, func(f eventstore.Fact) error { return g.apply(ctx, f) }); err != nil {
		return err
	}
	if err := g.finishEntries(ctx); err != nil {
		return err
	}
	if err := g.adjustCounts(ctx); err != nil {
		return err
	}
	if err := g.save(ctx); err != nil {
		return err
	}
	return g.recount(ctx)
}
