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
	"github.com/annals-project/annals/internal/unnest"
)

type organizationRow struct {
	id        uuid.UUID
	name      string
	createdAt time.Time
	keyID     *[16]byte
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
	namespace    uuid.UUID
	archived     bool
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

// page is the rows that a page of events touches.
type page struct {
	opened        []*registry.LogOpened
	organizations map[uuid.UUID]*organizationRow
	projects      map[uuid.UUID]*projectRow
	keys          map[uuid.UUID]*keyRow
}

// apply folds one event.
func (p *page) apply(f eventstore.Fact) error {
	switch e := f.Event.(type) {
	case *registry.LogOpened:
		p.opened = append(p.opened, e)
	case *registry.OrganizationCreated:
		p.organizations[e.OrganizationID] = &organizationRow{id: e.OrganizationID, name: e.Name, createdAt: unnest.Instant(e.CreatedAt), dirty: true}
	case *registry.ProjectCreated:
		p.projects[e.ProjectID] = &projectRow{
			id: e.ProjectID, organization: e.OrganizationID, number: e.Number, slug: e.Slug, name: e.Name, namespace: e.Namespace,
			createdAt: unnest.Instant(e.CreatedAt), dirty: true,
		}
	case *organization.ManagementKeySet:
		row := p.organizations[e.OrganizationID]
		if row == nil {
			return fmt.Errorf("key of an organization that nothing created: %s", e.OrganizationID)
		}
		hash, err := hashOf(e.Hash)
		if err != nil {
			return err
		}
		row.keyID, row.keyHash, row.keyPrefix, row.keySuffix, row.dirty = (*[16]byte)(&e.KeyID), hash, &e.Prefix, &e.Suffix, true
	case *project.KeyCreated:
		hash, err := hashOf(e.Hash)
		if err != nil {
			return err
		}
		p.keys[e.KeyID] = &keyRow{
			id: e.KeyID, project: e.ProjectID, name: e.Name, hash: hash, prefix: e.Prefix, suffix: e.Suffix,
			createdAt: unnest.Instant(e.CreatedAt), dirty: true,
		}
	case *project.KeyRevoked:
		row := p.keys[e.KeyID]
		if row == nil {
			return fmt.Errorf("end of a key that nothing created: %s", e.KeyID)
		}
		at := unnest.Instant(e.RevokedAt)
		row.revokedAt, row.dirty = &at, true
	case *project.Archived:
		return p.archive(e.ProjectID, true)
	case *project.Unarchived:
		return p.archive(e.ProjectID, false)
	case *organization.MemberAdded, *organization.PlanSet, *organization.CreditsGranted, *organization.SpendCapSet, *organization.Prepared, *project.CapsSet:
	case *registry.EventSetAside: // the runner's
	default:
		return fmt.Errorf("no rule for %s", f.Type)
	}
	return nil
}

func (p *page) archive(id uuid.UUID, archived bool) error {
	row := p.projects[id]
	if row == nil {
		return fmt.Errorf("archive of a project that nothing created: %s", id)
	}
	row.archived, row.dirty = archived, true
	return nil
}

func hashOf(text string) ([]byte, error) {
	hash, err := hex.DecodeString(text)
	if err != nil || len(hash) != 32 {
		return nil, fmt.Errorf("hash of a key is no SHA-256 in hexadecimal")
	}
	return hash, nil
}
