package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/internal/unnest"
)

// DropFacts removes the reservations whose sends are facts by now. next is after what time the first of the rest is due, 0 where none is left.
func (m *Meters) DropFacts(ctx context.Context) (next time.Duration, err error) {
	// One look at what is usually empty; both statements of the rest see the same or later.
	var left *float64
	const soonest = `select extract(epoch from min(until) - clock_timestamp())::float8 from ops.reservations`
	if err := m.db.QueryRow(ctx, soonest).Scan(&left); err != nil || left == nil {
		return 0, sweeping(err)
	}
	_, err = m.db.Exec(ctx, `delete from ops.reservations r using datapoints.sends s where s.id = r.send_id`)
	if err != nil {
		return 0, sweeping(err)
	}
	if err := m.db.QueryRow(ctx, soonest).Scan(&left); err != nil || left == nil {
		return 0, sweeping(err)
	}
	return max(time.Duration(*left*float64(time.Second)), time.Millisecond), nil
}

// Overdue are reservations whose time is over: nothing of them is appended from now on.
func (m *Meters) Overdue(ctx context.Context, limit int) ([]todo.Reservation, error) {
	rows, err := m.db.Query(ctx, `select send_id, try from ops.reservations where until < clock_timestamp() order by until limit $1`, limit)
	if err != nil {
		return nil, sweeping(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r todo.Reservation, err error) {
		err = row.Scan((*[16]byte)(&r.SendID), (*[16]byte)(&r.Try))
		return r, err
	})
	return list, sweeping(err)
}

// Drop removes reservations that were overdue before the head of the log was read that projection datapoints has passed by now: their
// sends are facts, or never will be.
func (m *Meters) Drop(ctx context.Context, overdue []todo.Reservation) error {
	_, err := m.db.Exec(ctx, `delete from ops.reservations r using unnest($1::uuid[], $2::uuid[]) as o (send_id, try)
		where r.send_id = o.send_id and r.try = o.try`,
		unnest.IDs(overdue, func(o todo.Reservation) uuid.UUID { return o.SendID }), unnest.IDs(overdue, func(o todo.Reservation) uuid.UUID { return o.Try }))
	return sweeping(err)
}

func sweeping(err error) error {
	if err != nil {
		return fmt.Errorf("sweep reservations: %w", err)
	}
	return nil
}
