package access

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
)

type organizationRow struct {
	id        uuid.UUID
	name      string
	createdAt time.Time
	plan      string
	spendCap  *int64
	owned     bool
	prepared  bool
	factor    bool
	position  int64
	keyID     *uuid.UUID
	keyHash   []byte
	keyPrefix *string
	keySuffix *string
	dirty     bool
}

type projectRow struct {
	id           uuid.UUID
	organization uuid.UUID
	number       int64
	slug         string
	name         string
	description  string
	namespace    uuid.UUID
	archived     bool
	ingestionCap *int64
	creditCap    *int64
	createdAt    time.Time
	dirty        bool
}

type keyRow struct {
	id        uuid.UUID
	project   uuid.UUID
	name      string
	hash      []byte
	prefix    string
	suffix    string
	createdAt time.Time
	revokedAt *time.Time
	dirty     bool
}

// fold is the rows that a page of events changes.
type fold struct {
	opened        []*registry.LogOpened
	organizations map[uuid.UUID]*organizationRow
	projects      map[uuid.UUID]*projectRow
	keys          map[uuid.UUID]*keyRow
	webhooks      map[string]*webhookRow
	people
	offers
	agents
}

// apply folds one event.
func (p *fold) apply(f eventstore.DecodedEvent) error {
	switch e := f.Event.(type) {
	case *registry.LogOpened:
		p.opened = append(p.opened, e)
	case *registry.OrganizationCreated:
		p.organizations[e.OrganizationID] = &organizationRow{
			id: e.OrganizationID, name: e.Name, createdAt: pgarray.Instant(e.CreatedAt), plan: string(e.Plan),
			position: int64(f.Position), dirty: true,
		}
		if e.OwnerID != uuid.Nil {
			return p.member(f.Position, e.OrganizationID, e.OwnerID, organization.Owner)
		}
	case *registry.ProjectCreated:
		p.projects[e.ProjectID] = &projectRow{
			id: e.ProjectID, organization: e.OrganizationID, number: e.Number, slug: e.Slug, name: e.Name,
			namespace: e.Namespace,
			createdAt: pgarray.Instant(e.CreatedAt), dirty: true,
		}
	case *organization.ManagementKeySet:
		hash, err := hashOf(e.Hash)
		if err != nil {
			return err
		}
		return p.organization(e.OrganizationID, func(row *organizationRow) {
			row.keyID, row.keyHash, row.keyPrefix, row.keySuffix = &e.KeyID, hash, &e.Prefix, &e.Suffix
		})
	case *organization.MemberAdded:
		return p.member(f.Position, e.OrganizationID, e.MemberID, e.Role)
	case *organization.MemberRoleSet:
		return p.member(f.Position, e.OrganizationID, e.MemberID, e.Role)
	case *organization.MemberRemoved:
		p.leave(e)
	case *organization.ProjectAccessSet:
		p.grants[grantKey{memberKey{e.OrganizationID, e.MemberID}, e.ProjectID}] = e.Access
	case *organization.SecondFactorSet:
		return p.organization(e.OrganizationID, func(row *organizationRow) { row.factor = e.Required })
	case *organization.PlanSet:
		return p.organization(e.OrganizationID, func(row *organizationRow) { row.plan = string(e.Plan) })
	case *organization.SpendCapSet:
		return p.organization(e.OrganizationID, func(row *organizationRow) { row.spendCap = e.Tenths })
	case *organization.Prepared:
		return p.organization(e.OrganizationID, func(row *organizationRow) { row.prepared = true })
	case *project.KeyCreated:
		hash, err := hashOf(e.Hash)
		if err != nil {
			return err
		}
		p.keys[e.KeyID] = &keyRow{
			id: e.KeyID, project: e.ProjectID, name: e.Name, hash: hash, prefix: e.Prefix, suffix: e.Suffix,
			createdAt: pgarray.Instant(e.CreatedAt), dirty: true,
		}
	case *project.KeyRevoked:
		row := p.keys[e.KeyID]
		if row == nil {
			return fmt.Errorf("revoked key %s was never created", e.KeyID)
		}
		at := pgarray.Instant(e.RevokedAt)
		row.revokedAt, row.dirty = &at, true
	case *project.Archived:
		return p.project(e.ProjectID, func(row *projectRow) { row.archived = true })
	case *project.Unarchived:
		return p.project(e.ProjectID, func(row *projectRow) { row.archived = false })
	case *project.Described:
		return p.project(e.ProjectID, func(row *projectRow) { row.name, row.description = e.Name, e.Description })
	case *project.CapsSet:
		return p.project(e.ProjectID, func(row *projectRow) {
			row.ingestionCap, row.creditCap = e.IngestionCap, e.CreditCapTenths
		})
	default:
		p.applyOffer(f.Event)
		p.applyPerson(f)
		p.applyAgent(f.Event)
		return p.applyWebhook(f.Event)
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
