// Package access projects the callers and their limits: the id of the log, organizations with plan,
// spend cap, management key and members, people, projects with their caps, project keys, webhooks, and agents.
package access

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
const Name = projection.Access

//go:embed schema.sql
var schema string

// Projector builds schema access.
type Projector struct{ projections.Base }

// New makes the projector. A caller that needs one of its few events waits for it, which ends the
// pause between pages; without a pause, most pages would hold none.
func New() Projector {
	return Projector{projections.NewBase(projections.Description{
		Name: Name, Version: 7, Schema: schema, Pace: projections.Pace{Min: 50 * time.Millisecond},
		Categories: []string{
			stream.Registry, stream.Organization, stream.Project, stream.Person, stream.Address, stream.Offer,
			stream.Visits,
			eventstore.SystemStream, // the tombstones of offers and visits
		},
		TextTables: []string{"people", "joins", "offers"},
		Counted: []string{
			"organizations", "projects", "keys", "webhooks", "people", "claims", "members", "joins", "offers",
			"grants", "agents", "client_grants", "visit_months",
		},
	})}
}

// Apply folds the page over the rows that it changes, then writes one statement per table. It fails
// on an event of an organization, a project, a key or a webhook that was never created.
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
