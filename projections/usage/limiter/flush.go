package limiter

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
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
