package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
)

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
