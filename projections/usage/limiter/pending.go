package limiter

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
)

// PendingCharges are the counted recalls with their identities, and the counted events of webhooks, in
// schema ops until the log has them.
type PendingCharges struct{ DB *pgxpool.Pool }

// batcher is a pool or a transaction.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// addFree counts calls that nothing was charged for before. It does not wait for the disk: a crash of the machine
// loses those of its last moment.
func (p PendingCharges) addFree(ctx context.Context, calls []call) error {
	b := &pgx.Batch{}
	b.Queue(`select set_config('synchronous_commit', 'off', true)`)
	return write(ctx, p.DB, calls, b)
}

// sum is what the calls of one project and month add up to.
type sum struct {
	monthKey
	amounts
	organization uuid.UUID
}

type seenKey struct{ project, identity uuid.UUID }

type seenRow struct {
	seenKey
	organization uuid.UUID
	at           time.Time
}

// write adds calls to the counts, after what b holds already. All writers use one order of rows, so
// that no two of them deadlock.
func write(ctx context.Context, db batcher, calls []call, b *pgx.Batch) error {
	if b == nil {
		b = &pgx.Batch{}
	}
	sums, seen := map[monthKey]sum{}, map[seenKey]seenRow{}
	for _, c := range calls {
		if c.amounts != (amounts{}) {
			sums[c.monthKey] = sum{c.monthKey, sums[c.monthKey].plus(c.amounts), c.organization}
		}
		key := seenKey{c.project, c.identity}
		if old := seen[key]; c.identity != uuid.Nil && !c.at.Before(old.at) {
			seen[key] = seenRow{key, c.organization, pgarray.Instant(c.at)}
		}
	}
	if len(sums) > 0 {
		rows := slices.SortedFunc(maps.Values(sums), func(a, b sum) int {
			return cmp.Or(bytes.Compare(a.project[:], b.project[:]), cmp.Compare(a.month, b.month))
		})
		queueSums(b, rows)
	}
	if len(seen) > 0 {
		rows := slices.SortedFunc(maps.Values(seen), func(a, b seenRow) int {
			return cmp.Or(bytes.Compare(a.project[:], b.project[:]), bytes.Compare(a.identity[:], b.identity[:]))
		})
		b.Queue(`insert into ops.seen as s (project_id, identity_id, flush_id, organization_id, at)
			select n.project_id, n.identity_id, $1, n.organization_id, n.at
				from unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::timestamptz[])
					as n (project_id, identity_id, organization_id, at)
			on conflict (project_id, identity_id, flush_id) do update set at = greatest(s.at, excluded.at)`,
			uuid.Nil,
			pgarray.IDs(rows, func(r seenRow) uuid.UUID { return r.project }),
			pgarray.IDs(rows, func(r seenRow) uuid.UUID { return r.identity }),
			pgarray.IDs(rows, func(r seenRow) uuid.UUID { return r.organization }),
			pgarray.Column(rows, func(r seenRow) time.Time { return r.at }))
	}
	if len(sums)+len(seen) == 0 {
		return nil
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("count calls: %w", err)
	}
	return nil
}

// queueSums adds sums, in the order of their keys, to what is not on its way into the log.
func queueSums(b *pgx.Batch, rows []sum) {
	b.Queue(`insert into ops.charges as c (project_id, month, flush_id, organization_id,
				recalls, recall_tenths, webhook_events, webhook_tenths)
			select s.project_id, s.month, $1, s.organization_id, s.recalls, s.recall_tenths, s.events, s.event_tenths
				from unnest($2::uuid[], $3::text[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
					as s (project_id, month, organization_id, recalls, recall_tenths, events, event_tenths)
			on conflict (project_id, month, flush_id) do update set recalls = c.recalls + excluded.recalls,
				recall_tenths = c.recall_tenths + excluded.recall_tenths,
				webhook_events = c.webhook_events + excluded.webhook_events,
				webhook_tenths = c.webhook_tenths + excluded.webhook_tenths`,
		uuid.Nil,
		pgarray.IDs(rows, func(s sum) uuid.UUID { return s.project }),
		pgarray.Column(rows, func(s sum) string { return s.month }),
		pgarray.IDs(rows, func(s sum) uuid.UUID { return s.organization }),
		pgarray.Column(rows, func(s sum) int64 { return s.recalls }),
		pgarray.Column(rows, func(s sum) int64 { return s.recallTenths }),
		pgarray.Column(rows, func(s sum) int64 { return s.events }),
		pgarray.Column(rows, func(s sum) int64 { return s.eventTenths }))
}

// Oldest returns the age of the oldest sum that the usage projection has not applied, by the clock
// of the database; ok is false if there is none. A sum that only a refund left below zero, and
// that waits for the next call, does not count.
func (p PendingCharges) Oldest(ctx context.Context) (age time.Duration, ok bool, err error) {
	var seconds *float64
	err = p.DB.QueryRow(ctx, `select extract(epoch from now() - min(since))::float8 from ops.charges c
		where `+flushable+`
		and not exists (select from usage.flushes f where f.flush_id = c.flush_id)`).Scan(&seconds)
	if err != nil || seconds == nil {
		return 0, false, err
	}
	return time.Duration(max(*seconds, 0) * float64(time.Second)), true, nil
}

// PendingSeen returns when identities of a project last recalled, if the log may not have it yet.
// identities are ids of stream.IdentityID. Older recalls are in the events usage.charged.
func (p PendingCharges) PendingSeen(
	ctx context.Context, project auth.Project, identities []uuid.UUID,
) (map[uuid.UUID]time.Time, error) {
	rows, err := p.DB.Query(ctx, `select identity_id, max(at) from ops.seen
		where project_id = $1 and identity_id = any($2::uuid[]) group by identity_id`, project.ID, identities)
	if err != nil {
		return nil, fmt.Errorf("read identities that recalled: %w", err)
	}
	seen := map[uuid.UUID]time.Time{}
	var id uuid.UUID
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		seen[id] = at.UTC()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read identities that recalled: %w", err)
	}
	return seen, nil
}
