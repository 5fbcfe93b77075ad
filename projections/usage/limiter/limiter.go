// Package limiter keeps the usage of organizations within their limits, on the write side of the
// usage projection: it reserves items and credits for sends (Limiter), charges recalls (Recalls) and
// the events of webhooks (Events), and hands out what is counted to be appended to the log
// (PendingCharges). All of its rows are in
// schema ops.
package limiter

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
	"github.com/annals-project/annals/internal/keylock"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
)

// Limiter reserves for sends within the limits of organizations, over all processes on the
// database. Under a lock on the organization's row it reads applied sends and reservations in one
// snapshot, and reserves from what is left.
type Limiter struct {
	db          *pgxpool.Pool
	terms       metering.PlanTerms
	projections Projections
	log         *slog.Logger
	queues      queues
	locks       keylock.Map[uuid.UUID]
}

// Projections reports whether a projection stopped.
type Projections interface {
	Stopped(ctx context.Context, projection string) error
}

// New makes a limiter. A nil Projections counts as none stopped.
func New(db *pgxpool.Pool, terms metering.PlanTerms, p Projections, log *slog.Logger) *Limiter {
	return &Limiter{db: db, terms: terms, projections: p, log: log, queues: newQueues()}
}

// required are the projections whose rows hold the usage. While one is stopped, usage is unknown.
var required = []string{datapoints.Name, usage.Name}

// Reserve makes a reservation if the limits allow it. The reservation lasts at least for hold;
// after that, the sweep may take it for abandoned. The faults are project-cap-reached,
// spend-cap-reached, out-of-credits, and service-unavailable if the limits cannot be read.
//
// Calls of one organization that arrive while others are decided form the next group, which is
// decided in the order of arrival in one transaction.
func (l *Limiter) Reserve(ctx context.Context, r metering.Reservation, hold time.Duration) error {
	// A reservation that is granted to a caller who left is taken for abandoned later.
	_, err := l.await(ctx, &request{Reservation: r, hold: hold})
	return err
}

// await queues a request and waits for its decision. If the context ends first and a group has the
// request, grouped is true, and it may be granted all the same.
func (l *Limiter) await(ctx context.Context, r *request) (grouped bool, err error) {
	if err := l.checkProjections(ctx); err != nil {
		return false, l.unavailable(ctx, r.OrganizationID, err)
	}
	r.month, r.done = metering.Month(r.At), make(chan struct{})
	if l.queues.add(r) {
		go l.decideAll(context.WithoutCancel(ctx), r.OrganizationID)
	}
	select {
	case <-r.done:
		return false, r.err
	case <-ctx.Done():
		return !l.queues.cancel(r), fmt.Errorf("reserve: %w", context.Cause(ctx))
	}
}

// charge counts a call if the limits allow its reservation, which has no items. If the context ends
// before that is decided, it is refunded.
func (l *Limiter) charge(
	ctx context.Context, charged call, r metering.Reservation, refund func(context.Context, call),
) error {
	q := &request{Reservation: r, charge: &charged}
	grouped, err := l.await(ctx, q)
	if !grouped {
		return err
	}
	<-q.done // groupTimeout bounds it
	if q.err == nil {
		refund(ctx, charged)
	}
	return err
}

// Release ends the reservation of a try whose send was not stored and will not be. It is not an
// error if the try reserved nothing.
func (l *Limiter) Release(ctx context.Context, sendID, try uuid.UUID) error {
	if _, err := l.db.Exec(ctx, `delete from ops.reservations where send_id = $1 and try = $2`, sendID, try); err != nil {
		return fmt.Errorf("release a reservation: %w", err)
	}
	return nil
}

// usedOf returns the use of a project and its organization.
func (l *Limiter) usedOf(a usage.Account, project uuid.UUID) metering.Used {
	of := a.Projects[project]
	return metering.Used{
		Ingestions: of.Ingestions, ProjectTenths: of.CreditTenths, OrganizationTenths: a.ChargedTenths(),
		LeftTenths: a.Ledger.Balance(l.terms, a.Month).LeftTenths(),
	}
}

// withOrgLock is locked with errors for the caller: a fault stays, the end of ctx too, and any
// other error is logged and becomes service-unavailable.
func (l *Limiter) withOrgLock(ctx context.Context, organization uuid.UUID, work func(tx pgx.Tx) error) error {
	err := l.checkProjections(ctx)
	if err == nil {
		err = l.locked(ctx, organization, work)
	}
	if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	if _, is := errors.AsType[*fault.Error](err); is {
		return err
	}
	return l.unavailable(ctx, organization, err)
}

func (l *Limiter) unavailable(ctx context.Context, organization uuid.UUID, err error) error {
	l.log.ErrorContext(ctx, "read of limits failed", "organization", organization, "err", err)
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "limits are unavailable; retry")
}

func (l *Limiter) checkProjections(ctx context.Context) error {
	if l.projections == nil {
		return nil
	}
	for _, name := range required {
		if err := l.projections.Stopped(ctx, name); err != nil {
			return fmt.Errorf("projection %s: %w", name, err)
		}
	}
	return nil
}

// locked runs work in a transaction that overlaps no other of the organization, in any process.
// Each of its statements sees what was committed before the statement began.
func (l *Limiter) locked(ctx context.Context, organization uuid.UUID, work func(tx pgx.Tx) error) error {
	// Callers queue here without a connection: the projections need connections to apply the sends
	// that reservations are for.
	unlock, err := l.locks.Lock(ctx, organization)
	if err != nil {
		return err
	}
	defer unlock()
	return pgx.BeginTxFunc(ctx, l.db, begin, func(tx pgx.Tx) error {
		if err := lockRow(ctx, tx, organization); err != nil {
			return err
		}
		return work(tx)
	})
}

// begin begins a transaction that locks rows of other callers. A process that is frozen in it holds
// them up for no longer than the timeout.
var begin = pgx.TxOptions{
	BeginQuery: "begin isolation level read committed; set local idle_in_transaction_session_timeout = '10s'",
}

// lockRow locks the row of an organization until the transaction ends.
func lockRow(ctx context.Context, tx pgx.Tx, organization uuid.UUID) error {
	locked, err := tx.Exec(ctx, `select from ops.meters where organization_id = $1 for update`, organization)
	if err == nil && locked.RowsAffected() == 0 {
		// If another transaction inserts the row at the same time, this waits for it, and the update
		// locks the row.
		_, err = tx.Exec(ctx, `insert into ops.meters (organization_id) values ($1)
			on conflict (organization_id) do update set organization_id = excluded.organization_id`, organization)
	}
	if err != nil {
		return fmt.Errorf("lock the limits of an organization: %w", err)
	}
	return nil
}
