package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/turns"
)

// Meters keep what organizations take within their limits, over all processes on the database: under the lock of the
// organization's row, facts and reservations are read in one snapshot, and what is left of the limits is reserved.
type Meters struct {
	db     *pgxpool.Pool
	tariff metering.Tariff
	// projections says whether what the facts rest on stopped: then nobody knows what was taken since.
	projections Projections
	log         *slog.Logger
	queues      queues
	turns       turns.Turns[uuid.UUID]
}

// Projections says whether a projection stopped.
type Projections interface {
	Stopped(ctx context.Context, projection string) error
}

// NewMeters makes meters. A nil Projections trusts them all.
func NewMeters(db *pgxpool.Pool, tariff metering.Tariff, p Projections, log *slog.Logger) *Meters {
	return &Meters{db: db, tariff: tariff, projections: p, log: log, queues: newQueues()}
}

// restsOn are the projections whose rows are the facts.
var restsOn = []string{"datapoints", Name}

// reserved are the reservations of organization $1 that are no facts yet, as more rows of used. Of several tries of one send one at most is stored.
const reserved = `
	union all select r.project_id, r.month, max(r.items), 0, max(r.credit_tenths) from ops.reservations r
		where r.organization_id = $1 and not exists (select from datapoints.sends s where s.id = r.send_id) group by r.send_id, r.project_id, r.month`

// Reserve takes a reservation where the limits leave it. It holds for so long at least; after that the sweep may take it for one that was
// left behind. Its faults are project-cap-reached, spend-cap-reached, out-of-credits, and service-unavailable where that cannot be told.
//
// Callers of one organization that come while others are decided are decided together, in the order in which they came.
func (m *Meters) Reserve(ctx context.Context, r metering.Reservation, hold time.Duration) error {
	if err := m.ready(ctx); err != nil {
		return m.unknown(ctx, r.OrganizationID, err)
	}
	a := &ask{Reservation: r, hold: hold, month: metering.Month(r.At), done: make(chan struct{})}
	if m.queues.add(a) {
		go m.work(context.WithoutCancel(ctx), r.OrganizationID)
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		m.queues.leave(a)
		return fmt.Errorf("reserve: %w", context.Cause(ctx))
	}
}

// Release gives back what a try has reserved, and of which nothing was stored nor will be. One that reserved nothing is fine.
func (m *Meters) Release(ctx context.Context, sendID, try uuid.UUID) error {
	if _, err := m.db.Exec(ctx, `delete from ops.reservations where send_id = $1 and try = $2`, sendID, try); err != nil {
		return fmt.Errorf("give a reservation back: %w", err)
	}
	return nil
}

// usedOf is what limits are held against.
func (m *Meters) usedOf(a Account, project uuid.UUID) metering.Used {
	of := a.Projects[project]
	return metering.Used{
		Ingestions: of.Ingestions, ProjectTenths: of.CreditTenths, OrganizationTenths: a.ChargedTenths(),
		LeftTenths: a.Ledger.Balance(m.tariff, a.Month).LeftTenths(),
	}
}

// alone runs work in a transaction that no other on the same organization overlaps, in any process. Each statement of it sees what was
// committed before it began. What fails is told to the log and answered with service-unavailable, but for faults.
func (m *Meters) alone(ctx context.Context, organization uuid.UUID, work func(tx pgx.Tx) error) error {
	err := m.ready(ctx)
	if err == nil {
		err = m.inTurn(ctx, organization, work)
	}
	if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	if _, told := errors.AsType[*fault.Error](err); told {
		return err
	}
	return m.unknown(ctx, organization, err)
}

// unknown is the answer where it cannot be told what is left.
func (m *Meters) unknown(ctx context.Context, organization uuid.UUID, err error) error {
	m.log.ErrorContext(ctx, "limits cannot be looked at", "organization", organization, "err", err)
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "limits cannot be looked at now; retry")
}

func (m *Meters) ready(ctx context.Context) error {
	if m.projections == nil {
		return nil
	}
	for _, name := range restsOn {
		if err := m.projections.Stopped(ctx, name); err != nil {
			return fmt.Errorf("projection %s: %w", name, err)
		}
	}
	return nil
}

func (m *Meters) inTurn(ctx context.Context, organization uuid.UUID, work func(tx pgx.Tx) error) error {
	// Those that wait here hold no connection: the projections need some to make facts of what is reserved.
	leave, err := m.turns.Enter(ctx, organization)
	if err != nil {
		return err
	}
	defer leave()
	return pgx.BeginTxFunc(ctx, m.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := lock(ctx, tx, organization); err != nil {
			return err
		}
		return work(tx)
	})
}

// lock makes who reserves for an organization wait for the end of the transaction, in any process.
func lock(ctx context.Context, tx pgx.Tx, organization uuid.UUID) error {
	locked, err := tx.Exec(ctx, `select from ops.meters where organization_id = $1 for update`, organization)
	if err == nil && locked.RowsAffected() == 0 {
		// The row that another inserts at the same time is waited for, and is locked by the update.
		_, err = tx.Exec(ctx, `insert into ops.meters (organization_id) values ($1)
			on conflict (organization_id) do update set organization_id = excluded.organization_id`, organization)
	}
	if err != nil {
		return fmt.Errorf("lock the limits of an organization: %w", err)
	}
	return nil
}
