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
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/keylock"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
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

// request is a reservation that waits for its decision.
type request struct {
	metering.Reservation
	month string
	hold  time.Duration
	// charge, unless it is nil, is counted in place of a reservation, since nothing is sent that would
	// be projected.
	charge *call
	// canceled and grouped are set under the mutex of the queues: if its caller left before it was in a
	// group, and once it is in one.
	canceled, grouped bool
	// done is closed once it is decided; err is the decision.
	done chan struct{}
	err  error
}

// queues are the requests of this process by organization. They wait without a connection: the
// projections need connections to apply the sends that reservations are for.
type queues struct {
	mu      *sync.Mutex
	waiting map[uuid.UUID][]*request // an entry exists while a goroutine decides for the organization
}

func newQueues() queues { return queues{mu: new(sync.Mutex), waiting: map[uuid.UUID][]*request{}} }

// add queues a request; first is true if no goroutine decides for its organization yet.
func (q queues) add(r *request) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, decided := q.waiting[r.OrganizationID]
	q.waiting[r.OrganizationID] = append(waiting, r)
	return !decided
}

// cancel removes a request that no group has yet; ok is false if a group has it.
func (q queues) cancel(r *request) (ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.canceled = !r.grouped
	return r.canceled
}

// next returns the requests that wait for an organization. None ends the work for it.
func (q queues) next(organization uuid.UUID) (group []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.waiting[organization] {
		if !r.canceled {
			r.grouped = true
			group = append(group, r)
		}
	}
	if len(group) == 0 {
		delete(q.waiting, organization)
		return nil
	}
	q.waiting[organization] = nil
	return group
}

// DropFacts removes the reservations whose sends are projected. next is the time until the first
// remaining one is due, 0 if none remains.
func (l *Limiter) DropFacts(ctx context.Context) (next time.Duration, err error) {
	// The table is usually empty: one query finds out. Later statements see the same or more.
	var left *float64
	const soonest = `select extract(epoch from min(until) - clock_timestamp())::float8 from ops.reservations`
	if err := l.db.QueryRow(ctx, soonest).Scan(&left); err != nil || left == nil {
		return 0, wrapSweep(err)
	}
	_, err = l.db.Exec(ctx, `delete from ops.reservations r using datapoints.sends s where s.id = r.send_id`)
	if err != nil {
		return 0, wrapSweep(err)
	}
	if err := l.db.QueryRow(ctx, soonest).Scan(&left); err != nil || left == nil {
		return 0, wrapSweep(err)
	}
	return max(time.Duration(*left*float64(time.Second)), time.Millisecond), nil
}

// Overdue returns reservations whose time is over: their sends are not appended any more.
func (l *Limiter) Overdue(ctx context.Context, limit int) ([]work.Reservation, error) {
	rows, err := l.db.Query(ctx, `select send_id, try from ops.reservations where until < clock_timestamp() order by until limit $1`, limit)
	if err != nil {
		return nil, wrapSweep(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r work.Reservation, err error) {
		err = row.Scan(&r.SendID, &r.Try)
		return r, err
	})
	return list, wrapSweep(err)
}

// Drop removes reservations. Call it only if they were overdue before a head of the log was read
// that projection datapoints has reached: their sends are projected, or never will be.
func (l *Limiter) Drop(ctx context.Context, overdue []work.Reservation) error {
	_, err := l.db.Exec(ctx, `delete from ops.reservations r using unnest($1::uuid[], $2::uuid[]) as o (send_id, try)
		where r.send_id = o.send_id and r.try = o.try`,
		pgarray.IDs(overdue, func(o work.Reservation) uuid.UUID { return o.SendID }),
		pgarray.IDs(overdue, func(o work.Reservation) uuid.UUID { return o.Try }))
	return wrapSweep(err)
}

func wrapSweep(err error) error {
	if err != nil {
		return fmt.Errorf("sweep reservations: %w", err)
	}
	return nil
}
