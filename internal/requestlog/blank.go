package requestlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/statement"
)

// Blanker removes the bodies of calls that carried or returned deleted data points.
type Blanker struct {
	DB *pgxpool.Pool

	mu sync.Mutex
	// dirty are the partitions that hold dead rows of blanked calls.
	dirty map[string]bool
}

// blankSize is how many data points are blanked in one transaction.
const blankSize = 256

// blanking begins a transaction that flushes wait for, so a frozen process must not stay in it.
var blanking = pgx.TxOptions{
	BeginQuery: "begin isolation level read committed; set local idle_in_transaction_session_timeout = '10s'",
}

// Blank removes the bodies of all calls that carried or returned one of the data points, and the source
// ids in their paths, also of calls that are still in the memory of any process. Then no table holds
// them; Tables names the partitions to vacuum. It may be repeated.
func (b *Blanker) Blank(ctx context.Context, dataPoints []uuid.UUID) error {
	for ids := range slices.Chunk(dataPoints, blankSize) {
		if err := b.record(ctx, ids); err != nil {
			return fmt.Errorf("record blanked data points: %w", err)
		}
		if err := b.remove(ctx, ids); err != nil {
			return fmt.Errorf("blank the bodies of calls: %w", err)
		}
	}
	return nil
}

// record makes every later flush leave out the bodies, and waits for the flushes in progress.
func (b *Blanker) record(ctx context.Context, ids []uuid.UUID) error {
	return pgx.BeginTxFunc(ctx, b.DB, blanking, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockDeletion); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into ops.blanked_points (data_point) select distinct unnest($1::uuid[])
			on conflict (data_point) do update set blanked_at = excluded.blanked_at`, ids)
		return err
	})
}

// remove removes what is stored.
func (b *Blanker) remove(ctx context.Context, ids []uuid.UUID) error {
	days := map[time.Time]bool{}
	err := pgx.BeginTxFunc(ctx, b.DB, pgx.TxOptions{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select distinct date_trunc('day', received_at, 'UTC') from ops.requests
			where ids && $1::uuid[]`, ids)
		if err != nil {
			return err
		}
		var day time.Time
		if _, err := pgx.ForEachRow(rows, []any{&day}, func() error { days[day.UTC()] = true; return nil }); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `delete from ops.request_payloads p using ops.requests r
			where r.ids && $1::uuid[] and p.project_id = r.project_id and p.received_at = r.received_at
				and p.request_id = r.request_id`, ids); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `update ops.requests r set path = split_part(k.endpoint, ' ', 2) from ops.request_kinds k
			where r.ids && $1::uuid[] and k.kind = r.kind and k.endpoint like '%' || $2 || '%'
				and r.path <> split_part(k.endpoint, ' ', 2)`,
			ids, sourceParameter)
		return err
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirty == nil {
		b.dirty = map[string]bool{}
	}
	for day := range days {
		for _, p := range partitioned {
			b.dirty[partition(p.table, day)] = true
		}
	}
	return nil
}

// TextTables are the tables that hold what calls carried; an asterisk ends the beginning of the names of partitions.
func TextTables() []string { return []string{"ops.requests*", "ops.request_payloads*"} }

// Tables returns the partitions with dead rows of blanked calls, and forgets them. If they are not
// vacuumed, another Blank of the same data points names them again.
func (b *Blanker) Tables(ctx context.Context) ([]pgx.Identifier, error) {
	b.mu.Lock()
	names := slices.Sorted(maps.Keys(b.dirty))
	b.dirty = nil
	b.mu.Unlock()
	return statement.All(ctx, b.DB, func(row pgx.CollectableRow) (id pgx.Identifier, err error) {
		id = pgx.Identifier{"ops", ""}
		err = row.Scan(&id[1])
		return id, err
	}, `select n from unnest($1::text[]) n where to_regclass('ops.' || n) is not null`, names)
}

// blankedRows is how many calls one slice blanks at most.
const blankedRows = 1000

// PersonRun removes an identity from the calls of a project in slices.
type PersonRun struct {
	Project  uuid.UUID
	Identity string
	// Calls is how many calls were changed so far, Called reports whether one of them was a call as this identity.
	Calls  int
	Called bool

	begun    bool
	at, last callKey
}

// BlankPerson takes the next slice of a run, and reports whether it was the last one. Then the identity is removed from
// the calls of the project, also from those that were in the memory of any process when the run began. A person may be
// named in a text in any spelling, so no text is searched: every call up to then loses its bodies, headers, the
// parameters of its path and the filter that dropped it. Calls as this identity lose that too. It may be repeated, also
// by another run. DirtyAll, after the last slice, names the partitions to vacuum.
func (b *Blanker) BlankPerson(ctx context.Context, r *PersonRun) (done bool, err error) {
	names := []string{r.Identity, redactText(r.Identity, maxIdentity)} // as it was sent, and as the log stores it
	if !r.begun {
		if err := b.beginRun(ctx, r, names); err != nil {
			return false, fmt.Errorf("find the calls of a person: %w", err)
		}
		r.begun = true
	}
	if r.at == r.last {
		return true, nil
	}
	at, changed, err := b.blankSlice(ctx, r.Project, names, r.at, r.last)
	if err != nil {
		return false, fmt.Errorf("blank the calls of a person: %w", err)
	}
	r.at, r.Calls = at, r.Calls+changed
	return r.at == r.last, nil
}

// beginRun finds the last call to blank, after it has made every flush blank the calls before.
func (b *Blanker) beginRun(ctx context.Context, r *PersonRun, names []string) error {
	if err := b.recordProject(ctx, r.Project); err != nil {
		return err
	}
	err := b.DB.QueryRow(ctx, `select exists (select from ops.requests where project_id = $1 and identity = any($2::text[]))`,
		r.Project, names).Scan(&r.Called)
	if err != nil {
		return err
	}
	r.at = firstCall
	if r.last, err = b.lastCall(ctx, r.Project); errors.Is(err, pgx.ErrNoRows) {
		r.last, err = r.at, nil
	}
	return err
}

// recordProject makes every later flush strip the calls that it has in memory, and waits for the flushes in progress.
func (b *Blanker) recordProject(ctx context.Context, project uuid.UUID) error {
	return pgx.BeginTxFunc(ctx, b.DB, blanking, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockDeletion); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into ops.blanked_projects (project_id, blanked_at) values ($1, clock_timestamp())
			on conflict (project_id) do update set blanked_at = excluded.blanked_at`, project)
		return err
	})
}

// DirtyAll notes all partitions as to be vacuumed: those that runs blanked, in any process and before any crash, are
// among them.
func (b *Blanker) DirtyAll(ctx context.Context) error {
	names := []string{}
	for _, p := range partitioned {
		some, err := partitionsOf(ctx, b.DB, p.table)
		if err != nil {
			return err
		}
		names = append(names, some...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirty == nil {
		b.dirty = map[string]bool{}
	}
	for _, name := range names {
		b.dirty[name] = true
	}
	return nil
}

// callKey is the place of a call in the tables.
type callKey struct {
	receivedAt time.Time
	requestID  uuid.UUID
}

// firstCall is before every call.
var firstCall = callKey{receivedAt: time.Unix(0, 0)}

// lastCall returns the newest call of a project: calls that come while it is blanked are not blanked.
func (b *Blanker) lastCall(ctx context.Context, project uuid.UUID) (at callKey, err error) {
	err = b.DB.QueryRow(ctx, `select received_at, request_id from ops.requests where project_id = $1
		order by received_at desc, request_id desc limit 1`, project).Scan(&at.receivedAt, &at.requestID)
	return at, err
}

// blankSlice blanks the next calls after one, up to the last, and returns the last of them and how many it changed.
func (b *Blanker) blankSlice(
	ctx context.Context, project uuid.UUID, names []string, after, last callKey,
) (end callKey, changed int, err error) {
	keys, err := statement.All(ctx, b.DB, func(row pgx.CollectableRow) (k callKey, err error) {
		return k, row.Scan(&k.receivedAt, &k.requestID)
	}, `select received_at, request_id from ops.requests
		where project_id = $1 and (received_at, request_id) > ($2, $3) and (received_at, request_id) <= ($4, $5)
		order by received_at, request_id limit $6`, project, after.receivedAt, after.requestID, last.receivedAt,
		last.requestID, blankedRows)
	if err != nil || len(keys) == 0 { // retention may have dropped the last one
		return last, 0, err
	}
	times := pgarray.Column(keys, func(k callKey) time.Time { return k.receivedAt })
	ids := pgarray.IDs(keys, func(k callKey) uuid.UUID { return k.requestID })
	err = pgx.BeginTxFunc(ctx, b.DB, pgx.TxOptions{}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `with slice as (
				select * from unnest($2::timestamptz[], $3::uuid[]) s (received_at, request_id)
			), bodies as (
				delete from ops.request_payloads p using slice s where p.project_id = $1 and p.received_at = s.received_at
					and p.request_id = s.request_id returning p.request_id
			), texts as (
				update ops.requests r set identity = case when r.identity = any($4::text[]) then null else r.identity end,
					identity_key = case when r.identity = any($4::text[]) then null else r.identity_key end,
					path = split_part(k.endpoint, ' ', 2), request_headers = '{}', response_headers = '{}',
					webhook = jsonb_set(r.webhook::jsonb, '{droppedBy}', 'null')::text
				from slice s, ops.request_kinds k
				where r.project_id = $1 and r.received_at = s.received_at and r.request_id = s.request_id and k.kind = r.kind
					and (r.identity = any($4::text[]) or r.path <> split_part(k.endpoint, ' ', 2) or r.request_headers <> '{}'
						or r.response_headers <> '{}' or r.webhook::jsonb ->> 'droppedBy' is not null)
				returning r.request_id
			)
			select count(*) from (select request_id from bodies union select request_id from texts) c`,
			project, times, ids, names).Scan(&changed)
	})
	return keys[len(keys)-1], changed, err
}
