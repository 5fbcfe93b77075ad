package usage

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
)

// flushesKept is how many flushes of a stream the projection remembers. A sum in ops.charges is
// looked up here until the next round of any process deletes it, so the newest few would do.
const flushesKept = 256

// monthKey is one project in one month: one usage stream.
type monthKey struct {
	project uuid.UUID
	month   string
}

type chargeRow struct {
	monthKey
	organization uuid.UUID
	recalls      int64
	recallTenths int64
	events       int64
	eventTenths  int64
	revision     eventstore.Revision
	dirty        bool
}

type planRow struct {
	*organization.PlanSet
	revision eventstore.Revision
}

type grantRow struct {
	*organization.CreditsGranted
	revision eventstore.Revision
}

type flushRow struct {
	id uuid.UUID
	monthKey
	revision eventstore.Revision
}

// fold is the rows that a page of events changes.
type fold struct {
	projects []*registry.ProjectCreated
	plans    []planRow
	grants   []grantRow
	flushes  []flushRow
	charges  map[monthKey]*chargeRow
}

// apply folds one event.
func (p *fold) apply(f eventstore.DecodedEvent) error {
	switch e := f.Event.(type) {
	case *registry.ProjectCreated:
		p.projects = append(p.projects, e)
	case *organization.PlanSet:
		p.plans = append(p.plans, planRow{e, f.Revision})
	case *organization.CreditsGranted:
		p.grants = append(p.grants, grantRow{e, f.Revision})
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
		row = &chargeRow{monthKey: key, revision: eventstore.NoStream}
		p.charges[key] = row
	}
	if revision <= row.revision {
		return
	}
	row.organization, row.revision, row.dirty = e.OrganizationID, revision, true
	row.recalls += e.Recalls
	row.recallTenths += e.RecallTenths
	row.events += e.WebhookEvents
	row.eventTenths += e.WebhookTenths
	p.flushes = append(p.flushes, flushRow{e.FlushID, key, revision})
}

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
	var wanted []monthKey
	for key := range keys {
		wanted = append(wanted, key)
	}
	rows, err := tx.Query(ctx, `select c.project_id, c.month, c.organization_id, c.recalls, c.recall_tenths, c.webhook_events, c.webhook_tenths, c.revision
		from charges c join unnest($1::uuid[], $2::text[]) as k (project_id, month) using (project_id, month)`,
		pgarray.IDs(wanted, func(k monthKey) uuid.UUID { return k.project }),
		pgarray.Column(wanted, func(k monthKey) string { return k.month }),
	)
	if err != nil {
		return nil, fmt.Errorf("load rows of a page: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		r := &chargeRow{}
		into := []any{
			&r.project, &r.month, &r.organization, &r.recalls, &r.recallTenths, &r.events, &r.eventTenths, &r.revision,
		}
		if err := rows.Scan(into...); err != nil {
			return nil, fmt.Errorf("load rows of a page: %w", err)
		}
		p.charges[r.monthKey] = r
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("load rows of a page: %w", err)
	}
	return p, nil
}
