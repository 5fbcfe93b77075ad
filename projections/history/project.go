package history

import (
	"context"
	_ "embed"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.History

//go:embed schema.sql
var schema string

// Projector keeps schema history.
type Projector struct{ projections.Base }

// New makes the projector.
func New() Projector {
	return Projector{projections.NewBase(projections.Description{
		Name: Name, Version: 2, Schema: schema,
		Categories: []string{
			stream.Registry, stream.Organization, stream.Project, stream.Audiences, stream.Identity, stream.Bulk,
			stream.DataPoint, stream.Ingestion, stream.Deletion, stream.Erasure, stream.Visits,
			eventstore.SystemStream, // the tombstones of visits
		},
		TextTables: []string{"settings"}, // a hash of traits confirms a guess of them
		Counted:    []string{"entries", "about", "settings", "names", "projects"},
		Pace:       projections.Pace{Min: 200 * time.Millisecond, Max: 500 * time.Millisecond},
	})}
}

// entryRow is a row of table entries.
type entryRow struct {
	ID             uuid.UUID `db:"id"`
	Organization   uuid.UUID `db:"organization_id"`
	Project        uuid.UUID `db:"project_id,null"`
	At             time.Time `db:"at"`
	Type           string    `db:"type"`
	Principal      string    `db:"principal"`
	Stream         string    `db:"stream,null"`
	Revision       *int64    `db:"revision"`
	FormerStream   string    `db:"former_stream,null"`
	FormerRevision *int64    `db:"former_revision"`
	IsOfThing      bool      `db:"of_thing"`
}

// aboutRow is a row of table about.
type aboutRow struct {
	Thing string    `db:"thing"`
	At    time.Time `db:"at"`
	ID    uuid.UUID `db:"id"`
}

// settingRow is a row of table settings.
type settingRow struct {
	Key      string `db:"key"`
	Stream   string `db:"stream"`
	Revision int64  `db:"revision"`
	Hash     []byte `db:"hash"`
}

// nameRow is a row of table names.
type nameRow struct {
	Thing string `db:"thing"`
	Name  string `db:"name"`
}

// projectRow is a row of table projects.
type projectRow struct {
	ID           uuid.UUID `db:"id"`
	Organization uuid.UUID `db:"organization_id,once"`
}

var (
	entryRows   = table.New[entryRow](Name, schema, "entries")
	aboutRows   = table.New[aboutRow](Name, schema, "about")
	settingRows = table.New[settingRow](Name, schema, "settings")
	nameRows    = table.New[nameRow](Name, schema, "names")
	projectRows = table.New[projectRow](Name, schema, "projects")
)

// Apply folds a page of events, then writes one statement per table.
func (Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	f := newFold()
	if err := projections.Each(events, f.read); err != nil {
		return err
	}
	if f.isEmpty() {
		return nil
	}
	if err := f.load(ctx, tx); err != nil {
		return err
	}
	for i := range f.items {
		f.apply(&f.items[i])
	}
	return f.save(ctx, tx)
}
