// Package usage projects plans, grants, and charged recalls and received events. It reads them as one account of an
// organization, together with the price of data points and with what package limiter holds in
// schema ops.
package usage

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
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

// flushesKept is how many flushes of a stream the projection remembers. A sum in ops.charges is
// looked up here until the next round of any process deletes it, so the newest few would do.
const flushesKept = 256

// projectRow is a row of table projects.
type projectRow struct {
	Project      uuid.UUID `db:"project_id"`
	Organization uuid.UUID `db:"organization_id"`
}

// planRow is a row of table plans.
type planRow struct {
	Organization  uuid.UUID           `db:"organization_id"`
	Revision      eventstore.Revision `db:"revision"`
	Plan          metering.Plan       `db:"plan"`
	Month         string              `db:"month"`
	ChargedTenths int64               `db:"charged_tenths"`
}

// grantRow is a row of table grants.
type grantRow struct {
	Organization uuid.UUID           `db:"organization_id"`
	Revision     eventstore.Revision `db:"revision"`
	Kind         metering.Grant      `db:"kind"`
	Month        string              `db:"month"`
	Tenths       int64               `db:"tenths"`
}

// monthKey is one project in one month: one usage stream.
type monthKey struct {
	Project uuid.UUID `db:"project_id"`
	Month   string    `db:"month"`
}

// chargeRow is a row of table charges.
type chargeRow struct {
	monthKey
	Organization uuid.UUID           `db:"organization_id,once"`
	Recalls      int64               `db:"recalls"`
	RecallTenths int64               `db:"recall_tenths"`
	Events       int64               `db:"webhook_events"`
	EventTenths  int64               `db:"webhook_tenths"`
	Revision     eventstore.Revision `db:"revision"`
	dirty        bool
}

// flushRow is a row of table flushes.
type flushRow struct {
	ID uuid.UUID `db:"flush_id"`
	monthKey
	Revision eventstore.Revision `db:"revision"`
}

var (
	projects = table.New[projectRow](Name, schema, "projects")
	plans    = table.New[planRow](Name, schema, "plans")
	grants   = table.New[grantRow](Name, schema, "grants")
	charges  = table.New[chargeRow](Name, schema, "charges")
	flushes  = table.New[flushRow](Name, schema, "flushes")
)

// fold is the rows that a page of events changes.
type fold struct {
	projects []*projectRow
	plans    []*planRow
	grants   []*grantRow
	flushes  []*flushRow
	charges  map[monthKey]*chargeRow
}

// apply folds one event.
func (p *fold) apply(f eventstore.DecodedEvent) error {
	switch e := f.Event.(type) {
	case *registry.ProjectCreated:
		p.projects = append(p.projects, &projectRow{e.ProjectID, e.OrganizationID})
	case *organization.PlanSet:
		p.plans = append(p.plans, &planRow{e.OrganizationID, f.Revision, e.Plan, e.Month, e.ChargedTenths})
	case *organization.CreditsGranted:
		p.grants = append(p.grants, &grantRow{e.OrganizationID, f.Revision, e.Kind, e.Month, e.Tenths})
	case *metering.Charged:
		p.charge(e, f.Revision)
	}
	return nil
}

// charge adds the counts of an event, unless they were added before.
func (p *fold) charge(e *metering.Charged, revision eventstore.Revision) {
	key := monthKey{e.ProjectID, e.Month}
	row := p.charges[key]
	if row == nil {
		row = &chargeRow{monthKey: key, Revision: eventstore.NoStream}
		p.charges[key] = row
	}
	if revision <= row.Revision {
		return
	}
	row.Organization, row.Revision, row.dirty = e.OrganizationID, revision, true
	row.Recalls += e.Recalls
	row.RecallTenths += e.RecallTenths
	row.Events += e.WebhookEvents
	row.EventTenths += e.WebhookTenths
	p.flushes = append(p.flushes, &flushRow{e.FlushID, key, revision})
}

var chargesByKey = charges.Select(
	`charges join unnest($1::uuid[], $2::text[]) as k (project_id, month) using (project_id, month)`)

// load reads the sums that the events change.
func load(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) (*fold, error) {
	p := &fold{charges: map[monthKey]*chargeRow{}}
	keys := map[monthKey]bool{}
	for _, f := range events {
		if e, ok := f.Event.(*metering.Charged); ok {
			keys[monthKey{e.ProjectID, e.Month}] = true
		}
	}
	if len(keys) == 0 {
		return p, nil
	}
	wanted, b := slices.Collect(maps.Keys(keys)), &pgx.Batch{}
	b.Queue(chargesByKey, pgarray.IDs(wanted, func(k monthKey) uuid.UUID { return k.Project }),
		pgarray.Column(wanted, func(k monthKey) string { return k.Month }),
	).Query(charges.Read(func(r *chargeRow) { p.charges[r.monthKey] = r }))
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("load rows of a page: %w", err)
	}
	return p, nil
}

// save writes the rows that the page changed, in one round trip.
func (p *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	projects.Insert(b, p.projects)
	plans.Insert(b, p.plans)
	grants.Insert(b, p.grants)
	p.saveCharges(b)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write rows of a page: %w", err)
	}
	return nil
}

func (p *fold) saveCharges(b *pgx.Batch) {
	var rows []*chargeRow
	for _, row := range p.charges {
		if row.dirty {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return
	}
	charges.Save(b, rows)
	flushes.Insert(b, p.flushes)
	b.Queue(`delete from flushes f using unnest($1::uuid[], $2::text[], $3::bigint[]) as s (project_id, month, newest)
		where f.project_id = s.project_id and f.month = s.month and f.revision <= s.newest - $4::bigint`,
		pgarray.IDs(rows, func(r *chargeRow) uuid.UUID { return r.Project }),
		pgarray.Column(rows, func(r *chargeRow) string { return r.Month }),
		pgarray.Column(rows, func(r *chargeRow) int64 { return int64(r.Revision) }), int64(flushesKept))
}
