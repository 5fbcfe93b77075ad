// Package access projects the callers and their limits: the id of the log, organizations with plan,
// spend cap, management key and members, people, projects with their caps, project keys, webhooks, and agents.
package access

import (
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
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

// logRow is a row of table log.
type logRow struct {
	ID       uuid.UUID `db:"id"`
	OpenedAt time.Time `db:"opened_at"`
}

// organizationRow is a row of table organizations.
type organizationRow struct {
	ID           uuid.UUID  `db:"id"`
	Name         string     `db:"name"`
	CreatedAt    time.Time  `db:"created_at,once"`
	Plan         string     `db:"plan"`
	SpendCap     *int64     `db:"spend_cap_tenths"`
	Owned        bool       `db:"owned"`
	Prepared     bool       `db:"prepared"`
	SecondFactor bool       `db:"second_factor"`
	VisitDays    int        `db:"visit_days"`
	AuditorTexts bool       `db:"auditor_texts"`
	Position     int64      `db:"position,once"`
	KeyID        *uuid.UUID `db:"management_key_id"`
	KeyHash      []byte     `db:"management_key_hash"`
	KeyPrefix    *string    `db:"management_key_prefix"`
	KeySuffix    *string    `db:"management_key_suffix"`
	dirty        bool
}

// projectRow is a row of table projects.
type projectRow struct {
	ID           uuid.UUID `db:"id"`
	Organization uuid.UUID `db:"organization_id,once"`
	Number       int64     `db:"number,once"`
	Slug         string    `db:"slug,once"`
	Name         string    `db:"name"`
	Description  string    `db:"description"`
	Namespace    uuid.UUID `db:"namespace,once"`
	Archived     bool      `db:"archived"`
	IngestionCap *int64    `db:"ingestion_cap"`
	CreditCap    *int64    `db:"credit_cap_tenths"`
	Reads        string    `db:"reads"`
	ReadDays     int       `db:"read_days"`
	CreatedAt    time.Time `db:"created_at,once"`
	dirty        bool
}

// keyRow is a row of table keys.
type keyRow struct {
	ID        uuid.UUID  `db:"id"`
	Project   uuid.UUID  `db:"project_id,once"`
	Name      string     `db:"name,once"`
	Hash      []byte     `db:"hash,once"`
	Prefix    string     `db:"prefix,once"`
	Suffix    string     `db:"suffix,once"`
	CreatedAt time.Time  `db:"created_at,once"`
	RevokedAt *time.Time `db:"revoked_at"`
	dirty     bool
}

var (
	logs          = table.New[logRow](Name, schema, "log")
	organizations = table.New[organizationRow](Name, schema, "organizations")
	projects      = table.New[projectRow](Name, schema, "projects")
	keys          = table.New[keyRow](Name, schema, "keys")
)

// fold is the rows that a page of events changes.
type fold struct {
	opened        []*logRow
	organizations map[uuid.UUID]*organizationRow
	projects      map[uuid.UUID]*projectRow
	keys          map[uuid.UUID]*keyRow
	webhooks      map[string]*webhookRow
	people
	offers
	agents
	visitRows
}

// apply folds one event.
func (p *fold) apply(f eventstore.DecodedEvent) error {
	switch e := f.Event.(type) {
	case *registry.LogOpened:
		p.opened = append(p.opened, &logRow{ID: e.LogID, OpenedAt: pgarray.Instant(e.OpenedAt)})
	case *registry.OrganizationCreated:
		p.organizations[e.OrganizationID] = &organizationRow{
			ID: e.OrganizationID, Name: e.Name, CreatedAt: pgarray.Instant(e.CreatedAt), Plan: string(e.Plan),
			Position: int64(f.Position), VisitDays: organization.DefaultVisitDays, dirty: true,
		}
		if e.OwnerID != uuid.Nil {
			return p.member(f.Position, e.OrganizationID, e.OwnerID, organization.Owner)
		}
	case *registry.ProjectCreated:
		p.projects[e.ProjectID] = &projectRow{
			ID: e.ProjectID, Organization: e.OrganizationID, Number: e.Number, Slug: e.Slug, Name: e.Name,
			Namespace: e.Namespace, ReadDays: project.DefaultReads().Days,
			CreatedAt: pgarray.Instant(e.CreatedAt), dirty: true,
		}
	case *organization.ManagementKeySet:
		hash, err := hashOf(e.Hash)
		if err != nil {
			return err
		}
		return p.organization(e.OrganizationID, func(row *organizationRow) {
			row.KeyID, row.KeyHash, row.KeyPrefix, row.KeySuffix = &e.KeyID, hash, &e.Prefix, &e.Suffix
		})
	case *organization.MemberAdded:
		return p.member(f.Position, e.OrganizationID, e.MemberID, e.Role)
	case *organization.MemberRoleSet:
		return p.member(f.Position, e.OrganizationID, e.MemberID, e.Role)
	case *organization.MemberRemoved:
		p.leave(e)
	case *organization.ProjectAccessSet:
		p.grants[grantKey{memberKey{e.OrganizationID, e.MemberID}, e.ProjectID}] = e.Access
	case *project.KeyCreated:
		hash, err := hashOf(e.Hash)
		if err != nil {
			return err
		}
		p.keys[e.KeyID] = &keyRow{
			ID: e.KeyID, Project: e.ProjectID, Name: e.Name, Hash: hash, Prefix: e.Prefix, Suffix: e.Suffix,
			CreatedAt: pgarray.Instant(e.CreatedAt), dirty: true,
		}
	case *project.KeyRevoked:
		row := p.keys[e.KeyID]
		if row == nil {
			return fmt.Errorf("revoked key %s was never created", e.KeyID)
		}
		at := pgarray.Instant(e.RevokedAt)
		row.RevokedAt, row.dirty = &at, true
	case *project.Archived:
		return p.project(e.ProjectID, func(row *projectRow) { row.Archived = true })
	case *project.Unarchived:
		return p.project(e.ProjectID, func(row *projectRow) { row.Archived = false })
	case *project.Described:
		return p.project(e.ProjectID, func(row *projectRow) { row.Name, row.Description = e.Name, e.Description })
	case *project.CapsSet:
		return p.project(e.ProjectID, func(row *projectRow) {
			row.IngestionCap, row.CreditCap = e.IngestionCap, e.CreditCapTenths
		})
	case *project.ReadsSet:
		return p.project(e.ProjectID, func(row *projectRow) { row.Reads, row.ReadDays = string(e.Mode.Recorded()), e.Days })
	default:
		if set := settingOf(f.Event); set != nil {
			return p.organization(stream.Owner(f.Stream), set)
		}
		p.applyOffer(f.Event)
		p.applyPerson(f)
		p.applyAgent(f.Event)
		if err := p.applyVisit(f); err != nil {
			return err
		}
		return p.applyWebhook(f.Event)
	}
	return nil
}

// settingOf returns what an event sets of its organization, nil for nothing.
func settingOf(e event.Event) func(*organizationRow) {
	switch e := e.(type) {
	case *organization.SecondFactorSet:
		return func(row *organizationRow) { row.SecondFactor = e.Required }
	case *organization.VisitsKeptSet:
		return func(row *organizationRow) { row.VisitDays = e.Days }
	case *organization.AuditorTextsSet:
		return func(row *organizationRow) { row.AuditorTexts = e.Allowed }
	case *organization.PlanSet:
		return func(row *organizationRow) { row.Plan = string(e.Plan) }
	case *organization.SpendCapSet:
		return func(row *organizationRow) { row.SpendCap = e.Tenths }
	case *organization.Prepared:
		return func(row *organizationRow) { row.Prepared = true }
	}
	return nil
}

// organization changes the row of an organization.
func (p *fold) organization(id uuid.UUID, change func(*organizationRow)) error {
	row := p.organizations[id]
	if row == nil {
		return fmt.Errorf("organization %s was never created", id)
	}
	change(row)
	row.dirty = true
	return nil
}

// project changes the row of a project.
func (p *fold) project(id uuid.UUID, change func(*projectRow)) error {
	row := p.projects[id]
	if row == nil {
		return fmt.Errorf("project %s was never created", id)
	}
	change(row)
	row.dirty = true
	return nil
}

func hashOf(text string) ([]byte, error) {
	hash, err := hex.DecodeString(text)
	if err != nil || len(hash) != 32 {
		return nil, fmt.Errorf("hash of a key is not a SHA-256 in hexadecimal")
	}
	return hash, nil
}

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
