package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/person"
)

// Organization is an organization as its events left it.
type Organization struct {
	ID   uuid.UUID
	Name string
	Plan metering.Plan
	// SpendCapTenths bounds a month's charges in tenths of a credit; nil is no bound.
	SpendCapTenths *int64
	// OwnerID and OwnerEmail are of the newest owner. OwnerEmail is person.RemovedName if that one, or
	// the last of all, was erased, and "" if there never was an owner.
	OwnerID    *uuid.UUID
	OwnerEmail string
	// Prepared organizations are served.
	Prepared bool
	// ManagementKeyID is nil if no management key was ever set.
	ManagementKeyID *uuid.UUID
	CreatedAt       time.Time
	// VisitDays is for how many days visits are kept.
	VisitDays int
}

const selectOrganizations = `select o.id, o.name, o.plan, o.spend_cap_tenths, m.person_id, ` + ownerEmail + `,
		o.prepared, o.management_key_id, o.created_at, o.visit_days ` + ownedOrganizations

// ownedOrganizations are organizations o with the member m that is their newest owner, and that person p.
const (
	ownedOrganizations = ` from access.organizations o
	left join lateral (select person_id from access.members where organization_id = o.id and role = 'owner'
		order by position desc limit 1) m on true
	left join access.people p on p.id = m.person_id `
	ownerEmail = `case when o.owned then coalesce(p.email, '` + person.RemovedName + `') else '' end`
)

// OrganizationByID finds one organization.
func (q Queries) OrganizationByID(ctx context.Context, id uuid.UUID) (o Organization, ok bool, err error) {
	rows, err := q.DB.Query(ctx, selectOrganizations+`where o.id = $1`, id)
	if err != nil {
		return Organization{}, false, fmt.Errorf("find organization: %w", err)
	}
	o, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Organization])
	if errors.Is(err, pgx.ErrNoRows) {
		return Organization{}, false, nil
	}
	if err != nil {
		return Organization{}, false, fmt.Errorf("find organization: %w", err)
	}
	return o, true, nil
}
