// Package usage projects plans, grants, and charged recalls and received events. It reads them as one account of an
// organization, together with the price of data points and with what package limiter holds in
// schema ops.
package usage

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
)

// Name is the projection's name: its schema, its topic, and the name that callers wait for.
const Name = projection.Usage

//go:embed schema.sql
var schema string

// Projector builds schema usage.
type Projector struct{ projections.Base }

// New makes the projector. A caller that needs one of its few events waits for it, which ends the
// pause between pages; without a pause, most pages would hold none.
func New() Projector {
	return Projector{projections.NewBase(projections.Description{
		Name: Name, Version: 1, Categories: []string{stream.Registry, stream.Organization, stream.Usage}, Schema: schema,
		Pace: projections.Pace{Min: 50 * time.Millisecond}, Counted: []string{"plans", "grants", "charges"},
	})}
}

// Apply folds the page over the rows that it changes, then writes one statement per table. Events
// that were applied before change nothing.
func (Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	p, err := load(ctx, tx, events)
	if err != nil {
		return err
	}
	if err := projections.Each(events, p.apply); err != nil {
		return err
	}
	return p.save(ctx, tx)
}
