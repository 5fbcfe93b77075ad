package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/unnest"
)

// groupTimeout bounds the decision of a group, which outlives the callers that it is for.
const groupTimeout = 20 * time.Second

// work decides what waits for an organization, until nothing does.
func (m *Meters) work(ctx context.Context, organization uuid.UUID) {
	for asks := m.queues.take(organization); asks != nil; asks = m.queues.take(organization) {
		if err := m.decide(ctx, organization, asks); err != nil {
			err = m.unknown(ctx, organization, err)
			for _, a := range asks {
				a.err = err
			}
		}
		for _, a := range asks {
			close(a.done)
		}
	}
}

// decide answers a group in one transaction, which no other of the organization overlaps.
func (m *Meters) decide(ctx context.Context, organization uuid.UUID, asks []*ask) error {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	return m.inTurn(ctx, organization, func(tx pgx.Tx) error {
		t := taken{months: map[string]Account{}, sends: map[send]amount{}}
		for _, a := range asks {
			if _, known := t.months[a.month]; known {
				continue
			}
			account, err := accountOf(ctx, tx, reserved, organization, a.month)
			if err != nil {
				return err
			}
			t.months[a.month] = account
		}
		// What another try of the same send holds was counted above, since it cannot have come behind that.
		if err := t.load(ctx, tx, asks); err != nil {
			return err
		}
		var granted []*ask
		for _, a := range asks {
			if a.err = t.take(a, m.tariff); a.err == nil {
				granted = append(granted, a)
			}
		}
		return insert(ctx, tx, granted)
	})
}

func insert(ctx context.Context, tx pgx.Tx, granted []*ask) error {
	if len(granted) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `insert into ops.reservations (send_id, try, organization_id, project_id, month, items, credit_tenths, until)
		select n.send_id, n.try, n.organization_id, n.project_id, n.month, n.items, n.credit_tenths, clock_timestamp() + make_interval(secs => n.hold)
			from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::bigint[], $7::bigint[], $8::float8[])
				as n (send_id, try, organization_id, project_id, month, items, credit_tenths, hold)`,
		unnest.IDs(granted, func(a *ask) uuid.UUID { return a.SendID }), unnest.IDs(granted, func(a *ask) uuid.UUID { return a.Try }),
		unnest.IDs(granted, func(a *ask) uuid.UUID { return a.OrganizationID }), unnest.IDs(granted, func(a *ask) uuid.UUID { return a.ProjectID }),
		unnest.Column(granted, func(a *ask) string { return a.month }),
		unnest.Column(granted, func(a *ask) int64 { return a.Items }), unnest.Column(granted, func(a *ask) int64 { return a.CreditTenths }),
		unnest.Column(granted, func(a *ask) float64 { return a.hold.Seconds() }))
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	return nil
}

// send is a send in the month that it is reserved in.
type send struct {
	id    uuid.UUID
	month string
}

type amount struct{ items, tenths int64 }

// taken is what limits are held against, as a group of asks changes it.
type taken struct {
	months map[string]Account // by the months of the asks
	// tenths were taken of the balance by the group; items and their price were by project and month.
	tenths int64
	grown  map[monthKey]amount
	// sends is what tries of sends hold: they count once.
	sends map[send]amount
}

// load reads what other tries of the asked sends hold.
func (t *taken) load(ctx context.Context, tx pgx.Tx, asks []*ask) error {
	rows, err := tx.Query(ctx, `select send_id, month, max(items), max(credit_tenths) from ops.reservations where send_id = any($1::uuid[]) group by 1, 2`,
		unnest.IDs(asks, func(a *ask) uuid.UUID { return a.SendID }))
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	var of send
	var held amount
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&of.id), &of.month, &held.items, &held.tenths}, func() error {
		t.sends[of] = held
		return nil
	})
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	return nil
}

// take decides one ask: what is refused changes nothing.
func (t *taken) take(a *ask, tariff metering.Tariff) error {
	of := send{a.SendID, a.month}
	held := t.sends[of]
	more := a.Reservation
	more.Items, more.CreditTenths = max(0, a.Items-held.items), max(0, a.CreditTenths-held.tenths)
	key := monthKey{a.ProjectID, a.month}
	account := t.months[a.month]
	project := account.Projects[a.ProjectID]
	used := metering.Used{
		Ingestions: project.Ingestions + t.grown[key].items, ProjectTenths: project.CreditTenths + t.grown[key].tenths,
		OrganizationTenths: account.ChargedTenths(), LeftTenths: account.Ledger.Balance(tariff, a.month).LeftTenths() - t.tenths,
	}
	for k, grown := range t.grown {
		if k.month == a.month {
			used.OrganizationTenths += grown.tenths
		}
	}
	if err := more.Refuse(used, tariff[a.Limits.Plan]); err != nil {
		return err
	}
	if t.grown == nil {
		t.grown = map[monthKey]amount{}
	}
	t.tenths += more.CreditTenths
	t.grown[key] = amount{t.grown[key].items + more.Items, t.grown[key].tenths + more.CreditTenths}
	t.sends[of] = amount{max(held.items, a.Items), max(held.tenths, a.CreditTenths)}
	return nil
}
