package access

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/offer"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
)

// offers is what a page changes of offers. The steps of an offer have one order only, so that no row is read: its
// address, what is offered, the end, the tombstone.
type offers struct {
	addressed []*offer.Addressed
	made      []*organization.MemberOffered
	ended     []uuid.UUID
	gone      []uuid.UUID
}

// applyOffer folds an event of an offer.
func (o *offers) applyOffer(e event.Event) {
	switch e := e.(type) {
	case *offer.Addressed:
		o.addressed = append(o.addressed, e)
	case *organization.MemberOffered:
		o.made = append(o.made, e)
	case *organization.OfferEnded:
		o.ended = append(o.ended, e.OfferID)
	case *eventstore.Tombstoned:
		if stream.Category(e.Stream) == stream.Offer {
			o.gone = append(o.gone, stream.Owner(e.Stream))
		}
	}
}

// save writes one statement for each step: none of them knows the whole row.
func (o *offers) save(b *pgx.Batch) {
	if rows := o.addressed; len(rows) > 0 {
		b.Queue(`insert into offers (id, organization_id, email, address, addressed_at, settle_at)
			select id, organization_id, email, address, at, at
			from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[]) o (id, organization_id, email, address, at)
			on conflict (id) do nothing`,
			pgarray.IDs(rows, func(e *offer.Addressed) uuid.UUID { return e.OfferID }),
			pgarray.IDs(rows, func(e *offer.Addressed) uuid.UUID { return e.OrganizationID }),
			pgarray.Column(rows, func(e *offer.Addressed) string { return e.Email }),
			pgarray.Column(rows, func(e *offer.Addressed) string { return e.Address }),
			pgarray.Column(rows, func(e *offer.Addressed) time.Time { return pgarray.Instant(e.AddressedAt) }))
	}
	if rows := o.made; len(rows) > 0 {
		b.Queue(`update offers o set role = m.role, expires_at = m.expires_at, settle_at = m.expires_at
			from unnest($1::uuid[], $2::text[], $3::timestamptz[]) m (id, role, expires_at) where o.id = m.id`,
			pgarray.IDs(rows, func(e *organization.MemberOffered) uuid.UUID { return e.OfferID }),
			pgarray.Column(rows, func(e *organization.MemberOffered) string { return string(e.Role) }),
			pgarray.Column(rows, func(e *organization.MemberOffered) time.Time { return pgarray.Instant(e.ExpiresAt) }))
	}
	if len(o.ended) > 0 {
		b.Queue(`update offers set expires_at = null, settle_at = addressed_at where id = any($1::uuid[])`, o.ended)
	}
	if len(o.gone) > 0 {
		b.Queue(`delete from offers where id = any($1::uuid[])`, o.gone)
	}
}

// Offer is an open offer of a membership to an address.
type Offer struct {
	ID, Organization uuid.UUID
	// Name is that of the organization.
	Name      string
	Email     string
	Role      organization.Role
	ExpiresAt time.Time
}

// openOffers selects the offers that are open at $1.
const openOffers = `select f.id, f.organization_id, o.name, f.email, f.role, f.expires_at
	from access.offers f join access.organizations o on o.id = f.organization_id
	where f.expires_at > $1`

// Offers lists offers of an organization that are open at a time, at most MaxMembers, the first to expire first.
func (q Queries) Offers(ctx context.Context, organizationID uuid.UUID, now time.Time) ([]Offer, error) {
	return q.listOffers(ctx, openOffers+` and f.organization_id = $2 order by f.expires_at, f.id limit $3`,
		now, organizationID, MaxMembers)
}

// OffersTo lists offers to an address that are open at a time, by the name of its stream: at most MaxOrganizations, the
// first to expire first.
func (q Queries) OffersTo(ctx context.Context, address string, now time.Time) ([]Offer, error) {
	return q.listOffers(ctx, openOffers+` and f.address = $2 order by f.expires_at, f.id limit $3`,
		now, address, MaxOrganizations)
}

func (q Queries) listOffers(ctx context.Context, sql string, args ...any) ([]Offer, error) {
	rows, err := q.DB.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("list offers: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Offer])
	if err != nil {
		return nil, fmt.Errorf("list offers: %w", err)
	}
	for i := range list {
		list[i].ExpiresAt = list[i].ExpiresAt.UTC()
	}
	return list, nil
}

// OpenOffers lists, after an id and in the order of ids, the offers that may have to be settled at a time: those that
// have ended or expired, and those that were addressed and not made.
func (q Queries) OpenOffers(ctx context.Context, now time.Time, after uuid.UUID, limit int) ([]work.Offer, error) {
	rows, err := q.DB.Query(ctx, `select id, organization_id, addressed_at from access.offers
		where settle_at <= $1 and id > $2 order by id limit $3`, now, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list offers to settle: %w", err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[work.Offer])
	if err != nil {
		return nil, fmt.Errorf("list offers to settle: %w", err)
	}
	return open, nil
}
