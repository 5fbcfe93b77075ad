package limiter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
)

const (
	// seenPerEvent is how many identities one event names: some 100 bytes each, far below
	// eventstore.MaxAppend.
	seenPerEvent = 2000
	// abandonedAfter is the time after the last Take of a flush, by the clock of the database, when
	// another process may append it. It does no harm if two processes append the same flush.
	abandonedAfter = "1 minute"

	// maxSums and maxSeen bound what one Take assigns to flush ids, maxAbandoned the abandoned
	// flushes that it returns.
	maxSums      = 512
	maxSeen      = 50_000
	maxAbandoned = 64
)

// Take assigns flush ids to counts that are due. It returns these charges and those that another
// process abandoned; more reports that there may be others. Counts stay in ops until the log has
// them. What is below 0 after a refund waits until it is above 0 again. A sum whose project has a
// flush in progress waits for that, unless everything is due.
func (p PendingCharges) Take(ctx context.Context, due work.Due) (open []work.Charge, more bool, err error) {
	err = pgx.BeginTxFunc(ctx, p.DB, begin, func(tx pgx.Tx) error {
		t := taking{tx: tx, due: due, flushes: map[uuid.UUID][]uuid.UUID{}}
		if err := t.sums(ctx); err != nil {
			return err
		}
		if err := t.seen(ctx); err != nil {
			return err
		}
		open, err = t.open(ctx)
		more = t.more
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("take counted calls: %w", err)
	}
	return open, more, nil
}

// taking is one Take.
type taking struct {
	tx  pgx.Tx
	due work.Due
	// flushes are the new flushes of every project. If a project has flushes of two months, either
	// may carry its seen identities.
	flushes map[uuid.UUID][]uuid.UUID
	more    bool
}

// flushable is true of a sum of ops.charges that has something for the log, or nothing at all.
const flushable = `(greatest(recalls, recall_tenths, webhook_events, webhook_tenths) > 0
	or least(recalls, recall_tenths, webhook_events, webhook_tenths) = 0)`

// sums takes the sums that are due. What is below 0 in one of them stays.
func (t *taking) sums(ctx context.Context) error {
	// In the order in which counts are written, so that no two transactions deadlock.
	rows, err := t.tx.Query(ctx, `select project_id, month, organization_id, recalls, recall_tenths, webhook_events, webhook_tenths
		from ops.charges c
		where flush_id = $1 and `+flushable+` and ($2::float8 = 0
			or since <= now() - make_interval(secs => $2 * (0.5 + get_byte(uuid_send(project_id), 15) / 255.0))
				and not exists (select from ops.charges o
					where o.project_id = c.project_id and o.month = c.month and o.flush_id <> $1))
		order by project_id, month limit $3 for update of c`, uuid.Nil, t.due.Sum.Seconds(), maxSums)
	if err != nil {
		return err
	}
	var keys []monthKey
	var below []sum
	var s sum
	if _, err := pgx.ForEachRow(rows, []any{
		&s.project, &s.month, &s.organization, &s.recalls, &s.recallTenths, &s.events, &s.eventTenths,
	}, func() error {
		keys = append(keys, s.monthKey)
		if rest := s.belowZero(); rest != (amounts{}) {
			below = append(below, sum{s.monthKey, rest, s.organization})
		}
		return nil
	}); err != nil || len(keys) == 0 {
		return err
	}
	t.more = len(keys) == maxSums
	projects := pgarray.IDs(keys, func(k monthKey) uuid.UUID { return k.project })
	months := pgarray.Column(keys, func(k monthKey) string { return k.month })
	const locked = ` unnest($2::uuid[], $3::text[]) as k (project_id, month)
		where c.flush_id = $1 and c.project_id = k.project_id and c.month = k.month`
	const empty = ` and (c.recalls, c.recall_tenths, c.webhook_events, c.webhook_tenths) = (0, 0, 0, 0)`
	if _, err := t.tx.Exec(ctx, `delete from ops.charges c using`+locked+empty, uuid.Nil, projects, months); err != nil {
		return err
	}
	if rows, err = t.tx.Query(ctx, `update ops.charges c set flush_id = gen_random_uuid(), taken = now(),
			recalls = greatest(c.recalls, 0), recall_tenths = greatest(c.recall_tenths, 0),
			webhook_events = greatest(c.webhook_events, 0), webhook_tenths = greatest(c.webhook_tenths, 0) from`+locked+`
		returning c.project_id, c.flush_id`, uuid.Nil, projects, months); err != nil {
		return err
	}
	var project, flush uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&project, &flush}, func() error {
		t.flushes[project] = append(t.flushes[project], flush)
		return nil
	})
	if err != nil || len(below) == 0 {
		return err
	}
	b := &pgx.Batch{}
	queueSums(b, below)
	return t.tx.SendBatch(ctx, b).Close()
}

// seen distributes due identities over the flushes of their projects, and adds flushes if they are
// too many for one event. A project without a sum gets a separate flush for them, once they have
// waited long enough for a sum.
func (t *taking) seen(ctx context.Context) error {
	seen, err := t.lockSeen(ctx)
	if err != nil || len(seen) == 0 {
		return err
	}
	flushes := make([]uuid.UUID, len(seen))
	var own []uuid.UUID    // flushes without a sum
	var ownRows []seenRow  // a row of each of them
	var used, inLast int   // of the current project: rows come in the order of projects
	var project *uuid.UUID // the current one
	for i := range seen {
		r := seen[i]
		if project == nil || *project != r.project {
			project, used, inLast = &seen[i].project, 0, 0
		}
		if used == 0 || inLast == seenPerEvent {
			if used == len(t.flushes[r.project]) {
				flush := uuid.New()
				own, ownRows = append(own, flush), append(ownRows, r)
				t.flushes[r.project] = append(t.flushes[r.project], flush)
			}
			used, inLast = used+1, 0
		}
		inLast++
		flushes[i] = t.flushes[r.project][used-1]
	}
	if len(own) > 0 {
		if _, err := t.tx.Exec(ctx, `insert into ops.charges
				(project_id, month, flush_id, organization_id, recalls, recall_tenths, taken)
			select n.project_id, n.month, n.flush_id, n.organization_id, 0, 0, now()
				from unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[])
					as n (project_id, month, flush_id, organization_id)`,
			pgarray.IDs(ownRows, func(r seenRow) uuid.UUID { return r.project }),
			pgarray.Column(ownRows, func(r seenRow) string { return metering.Month(r.at) }),
			own,
			pgarray.IDs(ownRows, func(r seenRow) uuid.UUID { return r.organization })); err != nil {
			return err
		}
	}
	_, err = t.tx.Exec(ctx, `update ops.seen s set flush_id = n.flush_id
		from unnest($1::uuid[], $2::uuid[], $3::uuid[]) as n (project_id, identity_id, flush_id)
		where s.project_id = n.project_id and s.identity_id = n.identity_id and s.flush_id = $4`,
		pgarray.IDs(seen, func(r seenRow) uuid.UUID { return r.project }),
		pgarray.IDs(seen, func(r seenRow) uuid.UUID { return r.identity }),
		flushes, uuid.Nil)
	return err
}

// lockSeen locks the identities that are due, in the order in which they are written: those of
// projects with a new flush, and of projects that had no sum for as long as a sum stays out of the
// log.
func (t *taking) lockSeen(ctx context.Context) (seen []seenRow, err error) {
	wait := t.due.Seen + t.due.Sum + t.due.Sum/2
	rows, err := t.tx.Query(ctx, `select distinct project_id from ops.seen s where flush_id = $1 and ($2::float8 = 0
			or since <= now() - make_interval(secs => $2)
				and not exists (select from ops.charges o where o.project_id = s.project_id and o.flush_id <> $1))
			limit $3`,
		uuid.Nil, wait.Seconds(), maxSums)
	if err != nil {
		return nil, err
	}
	of := make(map[uuid.UUID]bool, len(t.flushes))
	waited := 0
	var project uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&project}, func() error {
		waited++
		of[project] = true
		return nil
	}); err != nil {
		return nil, err
	}
	for project := range t.flushes {
		of[project] = true
	}
	rows, err = t.tx.Query(ctx, `select project_id, identity_id, organization_id, at from ops.seen
		where flush_id = $1 and project_id = any($2::uuid[])
			and ($3::float8 = 0 or since <= now() - make_interval(secs => $3))
		order by project_id, identity_id limit $4 for update`,
		uuid.Nil, pgarray.Keys(of), t.due.Seen.Seconds(), maxSeen)
	if err != nil {
		return nil, err
	}
	var r seenRow
	into := []any{&r.project, &r.identity, &r.organization, &r.at}
	_, err = pgx.ForEachRow(rows, into, func() error {
		seen = append(seen, r)
		return nil
	})
	t.more = t.more || waited == maxSums || len(seen) == maxSeen
	return seen, err
}

// open reads the charges taken now and the abandoned ones, and marks the latter as taken again.
func (t *taking) open(ctx context.Context) (open []work.Charge, err error) {
	own := map[uuid.UUID]bool{}
	for _, flushes := range t.flushes {
		for _, flush := range flushes {
			own[flush] = true
		}
	}
	rows, err := t.tx.Query(ctx, `with abandoned as (
			select flush_id from ops.charges c
			where flush_id <> $1 and coalesce(taken, since) < now() - interval '`+abandonedAfter+`'
				and not exists (select from usage.flushes f where f.flush_id = c.flush_id)
			order by coalesce(taken, since), flush_id limit $3 for update of c skip locked)
		update ops.charges c set taken = now()
		where flush_id = any($2::uuid[]) or flush_id in (select flush_id from abandoned)
		returning c.flush_id, c.project_id, c.organization_id, c.month,
			c.recalls, c.recall_tenths, c.webhook_events, c.webhook_tenths`,
		uuid.Nil, pgarray.Keys(own), maxAbandoned)
	if err != nil {
		return nil, err
	}
	at := map[uuid.UUID]int{}
	var c work.Charge
	_, err = pgx.ForEachRow(rows, []any{
		&c.FlushID, &c.ProjectID, &c.OrganizationID, &c.Month,
		&c.Recalls, &c.RecallTenths, &c.WebhookEvents, &c.WebhookTenths,
	}, func() error {
		at[c.FlushID] = len(open)
		open = append(open, c)
		return nil
	})
	if err != nil || len(open) == 0 {
		return nil, err
	}
	t.more = t.more || len(open)-len(own) == maxAbandoned
	rows, err = t.tx.Query(ctx, `select flush_id, identity_id, at from ops.seen
		where flush_id = any($1::uuid[]) order by flush_id, identity_id`,
		pgarray.IDs(open, func(c work.Charge) uuid.UUID { return c.FlushID }))
	if err != nil {
		return nil, err
	}
	var flush uuid.UUID
	var s metering.Seen
	_, err = pgx.ForEachRow(rows, []any{&flush, &s.IdentityID, &s.At}, func() error {
		charge := &open[at[flush]]
		charge.Seen = append(charge.Seen, metering.Seen{IdentityID: s.IdentityID, At: s.At.UTC()})
		return nil
	})
	return open, err
}

// Begin records, before a sum is first appended, the last revision of its stream: if the sum is in
// the log, it is after that. It returns the revision that was recorded first; ok is false for a sum
// that projection usage has read from the log already.
func (p PendingCharges) Begin(
	ctx context.Context, flush uuid.UUID, last eventstore.Revision,
) (after eventstore.Revision, ok bool, err error) {
	err = p.DB.QueryRow(ctx, `update ops.charges c set after_revision = coalesce(after_revision, $2)
		where flush_id = $1 and not exists (select from usage.flushes f where f.flush_id = c.flush_id)
		returning after_revision`, flush, int64(last)).Scan(&after)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("begin a flush: %w", err)
	}
	return after, true, nil
}

// DropCharges deletes the sums that projection usage has read from the log, which count there from
// then on, and the known ones. The projection remembers the newest flushes of each stream only: the
// next process that appends an older one finds it in the log.
func (p PendingCharges) DropCharges(ctx context.Context, known ...uuid.UUID) error {
	// A row that another process has locked is deleted by that one, or in the next round.
	_, err := p.DB.Exec(
		ctx,
		`delete from ops.charges where flush_id in (select flush_id from ops.charges c where c.flush_id <> $1
		and (c.flush_id = any($2::uuid[]) or exists (select from usage.flushes f where f.flush_id = c.flush_id)) for update skip locked)`,
		uuid.Nil, known)
	if err != nil {
		return fmt.Errorf("drop charges that the log has: %w", err)
	}
	return nil
}

// DropSeen deletes the identities whose charges are deleted. Call it only once every projection
// that shows them has applied the charges that an earlier DropCharges deleted.
func (p PendingCharges) DropSeen(ctx context.Context) error {
	_, err := p.DB.Exec(ctx, `delete from ops.seen s where s.flush_id <> '00000000-0000-0000-0000-000000000000'
		and not exists (select from ops.charges c where c.flush_id = s.flush_id)`)
	if err != nil {
		return fmt.Errorf("drop identities that the log has: %w", err)
	}
	return nil
}

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
