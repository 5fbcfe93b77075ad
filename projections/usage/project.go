// Package usage knows what was charged and what is left: it projects plans, grants and charged recalls, keeps in schema ops
// the recalls that are not in the log yet, and reads both, together with what data points cost, as one account.
package usage

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// Name is the projection's name: its schema, its topic, and what answers wait for.
const Name = "usage"

//go:embed schema.sql
var schema string

// Projector keeps schema usage.
type Projector struct{}

var _ projections.Paced = Projector{}

// New makes the projector.
func New() Projector { return Projector{} }

// Name implements projections.Projector.
func (Projector) Name() string { return Name }

// Version implements projections.Projector.
func (Projector) Version() int { return 1 }

// Families implements projections.Projector.
func (Projector) Families() []string {
	return []string{stream.Registry, stream.Organization, stream.Usage}
}

// Schema implements projections.Projector.
func (Projector) Schema() string { return schema }

// Apply folds the page over the rows that it touches, then writes one statement per table. Facts that were applied before change
// nothing. It fails on an event that it does not know.
func (Projector) Apply(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) error {
	p, err := load(ctx, tx, facts)
	if err != nil {
		return err
	}
	if err := projections.Each(facts, p.apply); err != nil {
		return err
	}
	return p.save(ctx, tx)
}
