package usage

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/internal/unnest"
)

const (
	// seenPerEvent is how many identities one event names: they take some 100 bytes each, far below eventstore.MaxAppend.
	seenPerEvent = 2000
	// left is how old a flush is, by the clock of the database, once it counts as left behind by the process that took it. Two that
	// append the same one do no harm.
	left = "1 minute"
)

// Take puts what was counted up to now under flush ids, and answers these sums and those that others left behind. Sums stay counted
// until the log has them. One that something was given back of waits until it is above 0 again.
func (q Queries) Take(ctx context.Context) ([]todo.Charge, error) {
	var open []todo.Charge
	err := pgx.BeginFunc(ctx, q.DB, func(tx pgx.Tx) error {
		taken, err := takeCounts(ctx, tx)
		if err != nil {
			return err
		}
		if taken, err = takeSeen(ctx, tx, taken); err != nil {
			return err
		}
		open, err = openCharges(ctx, tx, taken)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take what was counted: %w", err)
	}
	return open, nil
}

// takeCounts answers the new flush of every project that has a sum; of two months either may name the identities.
func takeCounts(ctx context.Context, tx pgx.Tx) (map[uuid.UUID][]uuid.UUID, error) {
	// In the order in which those who count write them, so that nobody waits for one that waits for him.
	rows, err := tx.Query(ctx, `select project_id, month from ops.charges where flush_id = $1 order by project_id, month for update`, uuid.Nil)
	if err != nil {
		return nil, err
	}
	var keys []monthKey
	var key monthKey
	if _, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&key.project), &key.month}, func() error {
		keys = append(keys, key)
		return nil
	}); err != nil || len(keys) == 0 {
		return map[uuid.UUID][]uuid.UUID{}, err
	}
	projects, months := unnest.IDs(keys, func(k monthKey) uuid.UUID { return k.project }), unnest.Column(keys, func(k monthKey) string { return k.month })
	const locked = ` unnest($2::uuid[], $3::text[]) as k (project_id, month) where c.flush_id = $1 and c.project_id = k.project_id and c.month = k.month and `
	if _, err := tx.Exec(ctx, `delete from ops.charges c using`+locked+`c.recalls = 0 and c.recall_tenths = 0`, uuid.Nil, projects, months); err != nil {
		return nil, err
	}
	if rows, err = tx.Query(ctx, `update ops.charges c set flush_id = gen_random_uuid(), since = now() from`+locked+`c.recalls >= 0 and c.recall_tenths >= 0
		returning c.project_id, c.flush_id`, uuid.Nil, projects, months); err != nil {
		return nil, err
	}
	taken := map[uuid.UUID][]uuid.UUID{}
	var project, flush [16]byte
	_, err = pgx.ForEachRow(rows, []any{&project, &flush}, func() error {
		taken[project] = append(taken[project], flush)
		return nil
	})
	return taken, err
}

// takeSeen spreads who was seen over the flushes of their project, and over more of them where they are too many for one event.
func takeSeen(ctx context.Context, tx pgx.Tx, taken map[uuid.UUID][]uuid.UUID) (map[uuid.UUID][]uuid.UUID, error) {
	rows, err := tx.Query(ctx, `select project_id, identity_id, organization_id, at from ops.seen where flush_id = $1 order by project_id, identity_id for update`, uuid.Nil)
	if err != nil {
		return nil, err
	}
	var seen []seenRow
	var r seenRow
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&r.project), (*[16]byte)(&r.identity), (*[16]byte)(&r.organization), &r.at}, func() error {
		seen = append(seen, r)
		return nil
	})
	if err != nil || len(seen) == 0 {
		return taken, err
	}
	flushes := make([]uuid.UUID, len(seen))
	used, inLast := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for i, r := range seen {
		if used[r.project] == 0 || inLast[r.project] == seenPerEvent {
			if used[r.project] == len(taken[r.project]) {
				flush := uuid.New()
				if _, err := tx.Exec(ctx, `insert into ops.charges (project_id, month, flush_id, organization_id, recalls, recall_tenths) values ($1, $2, $3, $4, 0, 0)`,
					r.project, metering.Month(r.at), flush, r.organization); err != nil {
					return nil, err
				}
				taken[r.project] = append(taken[r.project], flush)
			}
			used[r.project]++
			inLast[r.project] = 0
		}
		inLast[r.project]++
		flushes[i] = taken[r.project][used[r.project]-1]
	}
	_, err = tx.Exec(ctx, `update ops.seen s set flush_id = n.flush_id from unnest($1::uuid[], $2::uuid[], $3::uuid[]) as n (project_id, identity_id, flush_id)
		where s.project_id = n.project_id and s.identity_id = n.identity_id and s.flush_id = $4`,
		unnest.IDs(seen, func(r seenRow) uuid.UUID { return r.project }), unnest.IDs(seen, func(r seenRow) uuid.UUID { return r.identity }),
		unnest.IDs(flushes, func(id uuid.UUID) uuid.UUID { return id }), uuid.Nil)
	return taken, err
}

// openCharges reads the sums that were taken now, and those that were left.
func openCharges(ctx context.Context, tx pgx.Tx, taken map[uuid.UUID][]uuid.UUID) ([]todo.Charge, error) {
	var own []uuid.UUID
	for _, flushes := range taken {
		own = append(own, flushes...)
	}
	rows, err := tx.Query(ctx, `select c.flush_id, c.project_id, c.organization_id, c.month, c.recalls, c.recall_tenths from ops.charges c
		where c.flush_id <> $1 and (c.flush_id = any($2::uuid[]) or c.since < now() - interval '`+left+`')
			and not exists (select from usage.flushes f where f.flush_id = c.flush_id) order by c.since, c.flush_id`,
		uuid.Nil, unnest.IDs(own, func(id uuid.UUID) uuid.UUID { return id }))
	if err != nil {
		return nil, err
	}
	var open []todo.Charge
	at := map[uuid.UUID]int{}
	var c todo.Charge
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&c.FlushID), (*[16]byte)(&c.ProjectID), (*[16]byte)(&c.OrganizationID), &c.Month, &c.Recalls, &c.RecallTenths}, func() error {
		at[c.FlushID] = len(open)
		open = append(open, c)
		return nil
	})
	if err != nil || len(open) == 0 {
		return nil, err
	}
	rows, err = tx.Query(ctx, `select flush_id, identity_id, at from ops.seen where flush_id = any($1::uuid[]) order by flush_id, identity_id`,
		unnest.IDs(open, func(c todo.Charge) uuid.UUID { return c.FlushID }))
	if err != nil {
		return nil, err
	}
	var flush [16]byte
	var s metering.Seen
	_, err = pgx.ForEachRow(rows, []any{&flush, (*[16]byte)(&s.IdentityID), &s.At}, func() error {
		charge := &open[at[flush]]
		charge.Seen = append(charge.Seen, metering.Seen{IdentityID: s.IdentityID, At: s.At.UTC()})
		return nil
	})
	return open, err
}

// Begin keeps, before a sum is first appended, what the last revision of its stream was: the sum stands above it, if it stands. It
// answers the one that was kept first; ok is false for a sum that is in the log already, as usage has seen.
func (q Queries) Begin(ctx context.Context, flush uuid.UUID, last eventstore.Revision) (after eventstore.Revision, ok bool, err error) {
	err = q.DB.QueryRow(ctx, `update ops.charges c set after_revision = coalesce(after_revision, $2)
		where flush_id = $1 and not exists (select from usage.flushes f where f.flush_id = c.flush_id) returning after_revision`, flush, int64(last)).Scan(&after)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("begin a flush: %w", err)
	}
	return after, true, nil
}

// DropCharges forgets the sums that usage has seen in the log: they counted there from that moment on. What lasts longer than the
// memory of usage, which is the newest flushes of a stream, is found in the log by whoever appends it next.
func (q Queries) DropCharges(ctx context.Context, known ...uuid.UUID) error {
	// A row that another process has at hand is dropped by that, or by the next round.
	_, err := q.DB.Exec(ctx, `delete from ops.charges where flush_id in (select flush_id from ops.charges c where c.flush_id <> $1
		and (c.flush_id = any($2::uuid[]) or exists (select from usage.flushes f where f.flush_id = c.flush_id)) for update skip locked)`,
		uuid.Nil, unnest.IDs(known, func(id uuid.UUID) uuid.UUID { return id }))
	if err != nil {
		return fmt.Errorf("drop what the log has: %w", err)
	}
	return nil
}

// DropSeen forgets who was seen as the log says too. It is called only once every projection that shows it has passed what
// an earlier DropCharges found there.
func (q Queries) DropSeen(ctx context.Context) error {
	_, err := q.DB.Exec(ctx, `delete from ops.seen s where s.flush_id <> '00000000-0000-0000-0000-000000000000'
		and not exists (select from ops.charges c where c.flush_id = s.flush_id)`)
	if err != nil {
		return fmt.Errorf("drop who the log has seen: %w", err)
	}
	return nil
}
