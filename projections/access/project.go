// Package access projects who may call, and what binds the calls: the log's id, organizations with plan, spend cap and management
// key, projects with their caps, and the projects' keys.
package access

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// Name is the projection's name: its schema, its topic, and what answers wait for.
const Name = "access"

//go:embed schema.sql
var schema string

// Projector keeps schema access.
type Projector struct{}

var _ projections.Paced = Projector{}

// New makes the projector.
func New() Projector { return Projector{} }

// Name implements projections.Projector.
func (Projector) Name() string { return Name }

// Version implements projections.Projector.
func (Projector) Version() int { return 4 }

// Families implements projections.Projector.
func (Projector) Families() []string {
	return []string{stream.Registry, stream.Organization, stream.Project}
}

// Schema implements projections.Projector.
func (Projector) Schema() string { return schema }

// Apply folds the page over the rows that it touches, then writes one statement per table. It fails on an event that it does
// not know, and on one about an organization, a project or a key that nothing created.
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
