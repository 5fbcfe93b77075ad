// Package directory projects the identity records of each project and the audiences that they
// belong to.
//
// Start with schema.sql, then fold.go: a page of events is folded over the rows that it touches
// (load.go), and the changed rows are written at once (save.go). Rules are stored as audience.Compile
// makes them, and an audience.Matcher matches them (rules.go). A page adjusts the counts of members
// (count.go); those of a new rule are counted in slices after its page (recount.go). What decided who read
// what in the past stays in tables of its own (past.go). The files query_*.go are the queries.
//
// The rows obey the erasure law: once a record is removed, a rebuild may find only the removal in its
// stream, and yields the same rows.
package directory

import (
	"context"
	_ "embed"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.Directory

//go:embed schema.sql
var schema string

// Projector keeps schema directory.
type Projector struct {
	projections.Base
	blobs      eventstore.BlobReader
	namespaces stream.Namespaces
	logger     *slog.Logger
	rules      *ruleCache
	// slice is the most identities that a slice of a recount counts, sliceBytes about the most bytes of
	// their traits.
	slice, sliceBytes int
}

var (
	_ projections.Bounded   = (*Projector)(nil)
	_ projections.Following = (*Projector)(nil)
)

// New makes the projector. namespaces derive the record ids of authors.
//
// The pace is slow, since most events only name the author of a data point, for which no caller
// waits: pages of such events every 50 ms took about a tenth of the processor time of an ingest. A
// caller that waits in another process waits longer by up to the pace.
func New(blobs eventstore.BlobReader, namespaces stream.Namespaces, logger *slog.Logger) *Projector {
	return &Projector{
		blobs: blobs, namespaces: namespaces, logger: logger, rules: newRuleCache(), slice: projections.SliceRows,
		sliceBytes: maxSliceBytes,
		Base: projections.NewBase(projections.Description{
			Name: Name, Version: 3, Schema: schema + projections.FollowUpTable,
			Categories: []string{
				stream.Registry, stream.Identity, stream.Bulk, stream.Audiences, stream.DataPoint, stream.Deletion, stream.Usage,
			},
			TextTables: []string{"identities", "marks", "past_traits"}, // hashes confirm a guessed trait
			Counted:    []string{"identities where identity is not null", "audiences", "members"},
			Pace:       projections.Pace{Min: 250 * time.Millisecond},
		}),
	}
}

// Apply folds a page of events over the rows that they touch, and writes one statement per table. The
// members of rules that were put or recomputed are counted after the page (recount.go). An event that
// was applied before changes nothing.
//
// A blob that is missing or damaged counts as no traits, no members, or a rule that matches no
// identity: it is logged and does not stop the projector. A blob that cannot be read now is an error.
func (p *Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	f, err := p.load(ctx, tx, events)
	if err != nil {
		return err
	}
	apply := func(decoded eventstore.DecodedEvent) error { return f.apply(ctx, decoded) }
	if err := projections.Each(events, apply); err != nil {
		return err
	}
	if err := f.encodeRecords(ctx); err != nil {
		return err
	}
	if err := f.adjustCounts(ctx); err != nil {
		return err
	}
	return f.save(ctx)
}
