package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
)

// Organization is an organization as its events left it.
type Organization struct {
	ID   uuid.UUID
	Name string
	Plan metering.Plan
	// SpendCapTenths bounds a month's charges in tenths of a credit; nil is no bound.
	SpendCapTenths *int64
	// OwnerID and OwnerEmail are of the newest owner. Before the first is a member, OwnerEmail is the
	// one of the creation.
	OwnerID    *uuid.UUID
	OwnerEmail string
	// Prepared organizations are served.
	Prepared bool
	// ManagementKeyID is nil if no management key was ever set.
	ManagementKeyID *uuid.UUID
	CreatedAt       time.Time
}

const selectOrganizations = `select id, name, plan, spend_cap_tenths, owner_id, owner_email, prepared, management_key_id, created_at
	from access.organizations `

// OrganizationByID finds one organization.
func (q Queries) OrganizationByID(ctx context.Context, id uuid.UUID) (o Organization, ok bool, err error) {
	rows, err := q.DB.Query(ctx, selectOrganizations+`where id = $1`, id)
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
