package access

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

// load reads the rows that the events change; what they create is not read.
func load(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) (*fold, error) {
	p := &fold{
		organizations: map[uuid.UUID]*organizationRow{},
		projects:      map[uuid.UUID]*projectRow{},
		keys:          map[uuid.UUID]*keyRow{},
		webhooks:      map[string]*webhookRow{},
		people:        newPeople(),
	}
	of, b := changedBy(events), &pgx.Batch{}
	table.Load(b, organizations, of.organizations, func(o *organizationRow) { p.organizations[o.ID] = o })
	table.Load(b, projects, of.projects, func(r *projectRow) { p.projects[r.ID] = r })
	table.Load(b, keys, of.keys, func(k *keyRow) { p.keys[k.ID] = k })
	table.Load(b, webhooks, of.webhooks, func(w *webhookRow) { p.webhooks[w.ID] = w })
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("load rows of a page: %w", err)
	}
	return p, nil
}

// touched are the ids of rows.
type touched struct {
	organizations, projects, keys map[uuid.UUID]bool
	webhooks                      map[string]bool
}

// changedBy returns the rows that the events change.
func changedBy(events []eventstore.DecodedEvent) touched {
	t := touched{map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[string]bool{}}
	for _, f := range events {
		switch e := f.Event.(type) {
		case *organization.ManagementKeySet:
			t.organizations[e.OrganizationID] = true
		case *organization.MemberAdded:
			t.organizations[e.OrganizationID] = true
		case *organization.MemberRoleSet:
			t.organizations[e.OrganizationID] = true
		case *project.KeyRevoked:
			t.keys[e.KeyID] = true
		case *project.Archived:
			t.projects[e.ProjectID] = true
		case *project.Unarchived:
			t.projects[e.ProjectID] = true
		case *project.Described:
			t.projects[e.ProjectID] = true
		case *project.CapsSet:
			t.projects[e.ProjectID] = true
		case *project.ReadsSet:
			t.projects[e.ProjectID] = true
		case *project.WebhookChanged:
			t.webhooks[e.WebhookID] = true
		case *project.WebhookPaused:
			t.webhooks[e.WebhookID] = true
		case *project.WebhookResumed:
			t.webhooks[e.WebhookID] = true
		case *project.WebhookTokenRotated:
			t.webhooks[e.WebhookID] = true
		case *project.WebhookDeleted:
			t.webhooks[e.WebhookID] = true
		default:
			if settingOf(f.Event) != nil {
				t.organizations[stream.Owner(f.Stream)] = true
			}
		}
	}
	return t
}

// save writes the rows that the page changed, in one round trip.
func (p *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	logs.Insert(b, p.opened)
	organizations.Save(b, table.Filter(p.organizations, func(o *organizationRow) bool { return o.dirty }))
	projects.Save(b, table.Filter(p.projects, func(r *projectRow) bool { return r.dirty }))
	keys.Save(b, table.Filter(p.keys, func(k *keyRow) bool { return k.dirty }))
	p.saveWebhooks(b)
	p.savePeople(b)
	p.offers.save(b)
	p.agents.save(b)
	p.visitRows.save(b)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write rows of a page: %w", err)
	}
	return nil
}
