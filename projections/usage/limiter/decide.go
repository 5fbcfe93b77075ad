package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/usage"
)

// groupTimeout bounds the decision of a group, which does not end with its callers.
const groupTimeout = 20 * time.Second

// decideAll decides the requests of an organization, group by group, until none waits.
func (l *Limiter) decideAll(ctx context.Context, organization uuid.UUID) {
	for group := l.queues.next(organization); group != nil; group = l.queues.next(organization) {
		err := panics.Call(ctx, l.log, "decision on reservations panicked", func() error {
			return l.decide(ctx, organization, group)
		}, "organization", organization)
		if err != nil {
			err = l.unavailable(ctx, organization, err)
			for _, r := range group {
				r.err = err
			}
		}
		for _, r := range group {
			close(r.done)
		}
	}
}

// decide decides a group in one transaction, which overlaps no other of the organization.
func (l *Limiter) decide(ctx context.Context, organization uuid.UUID, group []*request) error {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	return l.locked(ctx, organization, func(tx pgx.Tx) error {
		u := inUse{months: map[string]usage.Account{}, sends: map[send]amount{}}
		for _, r := range group {
			if _, known := u.months[r.month]; known {
				continue
			}
			account, err := usage.ReservedAccount(ctx, tx, organization, r.month)
			if err != nil {
				return err
			}
			u.months[r.month] = account
		}
		// The accounts count what another try of the same send holds: the lock keeps later ones out.
		if err := u.load(ctx, tx, group); err != nil {
			return err
		}
		var granted []*request
		var charged []call
		for _, r := range group {
			switch r.err = u.reserve(r, l.terms); {
			case r.err != nil:
			case r.charge != nil:
				charged = append(charged, *r.charge)
			default:
				granted = append(granted, r)
			}
		}
		if err := insert(ctx, tx, granted); err != nil {
			return err
		}
		return write(ctx, tx, charged, nil)
	})
}

func insert(ctx context.Context, tx pgx.Tx, granted []*request) error {
	if len(granted) == 0 {
		return nil
	}
	_, err := tx.Exec(
		ctx,
		`insert into ops.reservations (send_id, try, organization_id, project_id, month, items, credit_tenths, until)
		select n.send_id, n.try, n.organization_id, n.project_id, n.month, n.items, n.credit_tenths, clock_timestamp() + make_interval(secs => n.hold)
			from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::bigint[], $7::bigint[], $8::float8[])
				as n (send_id, try, organization_id, project_id, month, items, credit_tenths, hold)`,
		pgarray.IDs(granted, func(r *request) uuid.UUID { return r.SendID }),
		pgarray.IDs(granted, func(r *request) uuid.UUID { return r.Try }),
		pgarray.IDs(granted, func(r *request) uuid.UUID { return r.OrganizationID }),
		pgarray.IDs(granted, func(r *request) uuid.UUID { return r.ProjectID }),
		pgarray.Column(granted, func(r *request) string { return r.month }),
		pgarray.Column(granted, func(r *request) int64 { return r.Items }),
		pgarray.Column(granted, func(r *request) int64 { return r.CreditTenths }),
		pgarray.Column(granted, func(r *request) float64 { return r.hold.Seconds() }))
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	return nil
}

// monthKey is one project in one month.
type monthKey struct {
	project uuid.UUID
	month   string
}

// send is a send in the month that it is reserved in.
type send struct {
	id    uuid.UUID
	month string
}

type amount struct{ items, tenths int64 }

// inUse is what limits are compared with, and what a group of requests adds to it.
type inUse struct {
	months map[string]usage.Account // by the months of the requests
	// tenths is what the group reserves of the balance; added is its items and their price.
	tenths int64
	added  map[monthKey]amount
	// sends is what the tries of each send hold: the largest, since at most one try is stored.
	sends map[send]amount
}

// load reads what other tries of the same sends hold.
func (u *inUse) load(ctx context.Context, tx pgx.Tx, group []*request) error {
	rows, err := tx.Query(ctx, `select send_id, month, max(items), max(credit_tenths)
		from ops.reservations where send_id = any($1::uuid[]) group by 1, 2`,
		pgarray.IDs(group, func(r *request) uuid.UUID { return r.SendID }))
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	var of send
	var held amount
	_, err = pgx.ForEachRow(rows, []any{&of.id, &of.month, &held.items, &held.tenths}, func() error {
		u.sends[of] = held
		return nil
	})
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	return nil
}

// reserve decides one request. A refused one changes nothing.
func (u *inUse) reserve(r *request, terms metering.PlanTerms) error {
	of := send{r.SendID, r.month}
	held := u.sends[of]
	more := r.Reservation
	more.Items, more.CreditTenths = max(0, r.Items-held.items), max(0, r.CreditTenths-held.tenths)
	key := monthKey{r.ProjectID, r.month}
	account := u.months[r.month]
	project := account.Projects[r.ProjectID]
	used := metering.Used{
		Ingestions: project.Ingestions + u.added[key].items, ProjectTenths: project.CreditTenths + u.added[key].tenths,
		OrganizationTenths: account.ChargedTenths(),
		LeftTenths:         account.Ledger.Balance(terms, r.month).LeftTenths() - u.tenths,
	}
	for k, added := range u.added {
		if k.month == r.month {
			used.OrganizationTenths += added.tenths
		}
	}
	if err := more.Refuse(used, terms[r.Limits.Plan]); err != nil {
		return err
	}
	if u.added == nil {
		u.added = map[monthKey]amount{}
	}
	u.tenths += more.CreditTenths
	u.added[key] = amount{u.added[key].items + more.Items, u.added[key].tenths + more.CreditTenths}
	u.sends[of] = amount{max(held.items, r.Items), max(held.tenths, r.CreditTenths)}
	return nil
}
