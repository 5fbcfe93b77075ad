package requestlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/pgarray"
)

// deletionLock is the advisory lock between flushes, which share it, and Blank, which takes it alone.
// Either a flush sees what Blank recorded, or Blank finds what the flush has written.
const deletionLock = `x'616e6e616c74'::bigint # ` + schemas.LockKey

const (
	lockDeletion      = `select pg_advisory_xact_lock(` + deletionLock + `)`
	shareDeletionLock = `select pg_advisory_xact_lock_shared(` + deletionLock + `)`
)

// writing begins the transaction of a flush. A process that is frozen in it delays a deletion no
// longer than the timeout. A crash of the database may lose the newest rows, on which no answer
// depends.
var writing = pgx.TxOptions{BeginQuery: `begin isolation level read committed;
	set local idle_in_transaction_session_timeout = '10s'; set local synchronous_commit = off`}

// write writes a batch in one transaction.
func (w *Writer) write(ctx context.Context, batch []row) error {
	days := map[time.Time]bool{}
	for _, r := range batch {
		days[dayOf(r.receivedAt)] = true
	}
	for day := range days {
		if w.days[day] {
			continue
		}
		if err := createDay(ctx, w.db, day); err != nil {
			return err
		}
		if len(w.days) > 1000 {
			clear(w.days)
		}
		w.days[day] = true
	}
	if err := w.storeKinds(ctx, batch); err != nil {
		return err
	}
	err := pgx.BeginTxFunc(ctx, w.db, writing, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, shareDeletionLock); err != nil {
			return err
		}
		blanked, err := blankedOf(ctx, tx, batch)
		if err == nil {
			err = w.strip(ctx, tx, batch)
		}
		if err != nil {
			return err
		}
		if err := w.copyRows(ctx, tx, batch, blanked); err != nil {
			return err
		}
		return w.addCounts(ctx, tx, batch)
	})
	if err != nil {
		// A partition may have been dropped since.
		clear(w.days)
		return fmt.Errorf("write %d calls: %w", len(batch), err)
	}
	return nil
}

// maxKinds is how many kinds a writer remembers.
const maxKinds = 10_000

// storeKinds stores the kinds of a batch that are not known yet.
func (w *Writer) storeKinds(ctx context.Context, batch []row) error {
	unknown := map[kind]bool{}
	for _, r := range batch {
		if _, known := w.kinds[r.kind]; !known {
			unknown[r.kind] = true
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	if len(w.kinds) > maxKinds {
		clear(w.kinds)
		for _, r := range batch {
			unknown[r.kind] = true
		}
	}
	list := slices.SortedFunc(maps.Keys(unknown), func(a, b kind) int {
		return cmp.Or(strings.Compare(a.project.String(), b.project.String()), cmp.Compare(a.endpoint, b.endpoint),
			cmp.Compare(a.status, b.status), cmp.Compare(a.errorCode, b.errorCode), cmp.Compare(a.keyName, b.keyName),
			cmp.Compare(a.keyPrefix, b.keyPrefix))
	})
	columns := []any{
		pgarray.IDs(list, func(k kind) uuid.UUID { return k.project }),
		pgarray.Column(list, func(k kind) string { return k.endpoint }),
		pgarray.Column(list, func(k kind) int { return k.status }),
		pgarray.Column(list, func(k kind) string { return k.errorCode }),
		pgarray.Column(list, func(k kind) string { return k.keyName }),
		pgarray.Column(list, func(k kind) string { return k.keyPrefix }),
	}
	const names = `project_id, endpoint, status, error_code, key_name, key_prefix`
	const given = `unnest($1::uuid[], $2::text[], $3::int[], $4::text[], $5::text[], $6::text[])`
	if _, err := w.db.Exec(ctx, `insert into ops.request_kinds (`+names+`, name_key)
		select *, sha256(convert_to(key_name, 'UTF8')) from `+given+` as n (`+names+`) on conflict do nothing`,
		columns...); err != nil {
		return fmt.Errorf("store kinds of calls: %w", err)
	}
	rows, err := w.db.Query(ctx, `select kind, `+names+` from ops.request_kinds
		join `+given+` as n (`+names+`) using (`+names+`)`, columns...)
	if err != nil {
		return fmt.Errorf("read kinds of calls: %w", err)
	}
	var id int64
	var k kind
	_, err = pgx.ForEachRow(rows, []any{&id, &k.project, &k.endpoint, &k.status, &k.errorCode, &k.keyName, &k.keyPrefix},
		func() error { w.kinds[k] = id; return nil })
	if err != nil {
		return fmt.Errorf("read kinds of calls: %w", err)
	}
	return nil
}

// blankedFor is how long blanked data points and projects are recorded. A call that waits longer is written
// without text.
const blankedFor = 48 * time.Hour

// blankedOf returns which data points of a batch were blanked recently.
func blankedOf(ctx context.Context, tx pgx.Tx, batch []row) (map[uuid.UUID]bool, error) {
	var some bool
	if err := tx.QueryRow(ctx, `select exists (select from ops.blanked_points)`).Scan(&some); err != nil || !some {
		return nil, err
	}
	ids := map[uuid.UUID]bool{}
	for _, r := range batch {
		for _, id := range r.ids {
			ids[id] = true
		}
	}
	rows, err := tx.Query(ctx, `select data_point from ops.blanked_points where data_point = any($1::uuid[])`,
		pgarray.Keys(ids))
	if err != nil {
		return nil, err
	}
	blanked := map[uuid.UUID]bool{}
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error { blanked[id] = true; return nil })
	return blanked, err
}

// strip removes the text of calls that may be about a person who was erased after they came into memory.
func (w *Writer) strip(ctx context.Context, tx pgx.Tx, batch []row) error {
	rows, err := tx.Query(ctx, `select project_id, blanked_at from ops.blanked_projects`)
	if err != nil {
		return err
	}
	var project uuid.UUID
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&project, &at}, func() error {
		if !w.stripped[project].at.Equal(at) {
			w.stripped[project] = strippedUntil{at, time.Now()}
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range batch {
		r := &batch[i]
		until, some := w.stripped[r.project]
		if some && !r.added.After(until.seen) || time.Since(r.added) >= blankedFor/2 {
			_, r.path, _ = strings.Cut(r.kind.endpoint, " ")
			r.identity, r.payload, r.requestHeaders, r.responseHeaders = nil, nil, "{}", "{}"
			if r.webhook, err = withoutFilter(r.webhook); err != nil {
				return err
			}
		}
	}
	return nil
}

// strippedUntil is when a person of a project was erased, and when this process learned of it, by its own clock.
type strippedUntil struct{ at, seen time.Time }

// identityKey is what the recalls as an identity are found by, nil for other calls.
func (r *row) identityKey() *uuid.UUID {
	if r.identity == nil || r.hits == nil && !strings.HasSuffix(r.kind.endpoint, "/recall") {
		return nil
	}
	return new(identityKey(r.project, *r.identity))
}

func identityKey(project uuid.UUID, identity string) uuid.UUID {
	return uuid.NewSHA1(project, []byte(identity))
}

func (w *Writer) copyRows(ctx context.Context, tx pgx.Tx, batch []row, blanked map[uuid.UUID]bool) error {
	var bodies []row
	for i := range batch {
		r := &batch[i]
		dead := slices.ContainsFunc(r.ids, func(id uuid.UUID) bool { return blanked[id] })
		if dead {
			r.path = BlankPath(r.kind.endpoint, r.path)
		}
		if r.payload != nil && !dead {
			bodies = append(bodies, *r)
		}
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"ops", "requests"}, []string{
		"project_id", "received_at", "request_id", "kind", "path", "duration_us", "identity", "ingestion_id",
		"credit_tenths",
		"request_bytes", "response_bytes", "request_headers", "response_headers", "plan", "ids", "hits", "webhook",
		"identity_key", "person_id",
	}, pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) {
		r := batch[i]
		return []any{
			r.project, r.receivedAt, r.requestID, w.kinds[r.kind], r.path, r.duration.Microseconds(), r.identity,
			r.ingestionID, r.creditTenths, r.requestBytes, r.responseBytes, r.requestHeaders, r.responseHeaders, r.plan,
			r.ids, r.hits, r.webhook, r.identityKey(), r.person,
		}, nil
	}))
	if err != nil || len(bodies) == 0 {
		return err
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"ops", "request_payloads"}, []string{
		"project_id", "received_at", "request_id", "plan", "request", "response", "request_truncated", "response_truncated",
	}, pgx.CopyFromSlice(len(bodies), func(i int) ([]any, error) {
		r, p := bodies[i], bodies[i].payload
		return []any{
			r.project, r.receivedAt, r.requestID, r.plan, pack(p.Request), pack(p.Response),
			p.RequestTruncated, p.ResponseTruncated,
		}, nil
	}))
	return err
}

// BlankPath returns the path without source id: the template, if there is one in it.
func BlankPath(endpoint, path string) string {
	if _, template, _ := strings.Cut(endpoint, " "); strings.Contains(template, sourceParameter) {
		return template
	}
	return path
}

// sourceParameter is the parameter of a template that is a source id.
const sourceParameter = "{sourceId}"

// addCounts counts a batch. The rows are written in one order, so that no two flushes deadlock.
func (w *Writer) addCounts(ctx context.Context, tx pgx.Tx, batch []row) error {
	type key struct {
		project uuid.UUID
		step    int
		start   time.Time
		kind    int64
	}
	counts, tenths := map[key]int64{}, map[key]int64{}
	for _, r := range batch {
		for _, s := range steps {
			k := key{r.project, int(s), s.floor(r.receivedAt), w.kinds[r.kind]}
			counts[k]++
			tenths[k] += value(r.creditTenths)
		}
	}
	list := slices.SortedFunc(maps.Keys(counts), func(a, b key) int {
		return cmp.Or(strings.Compare(a.project.String(), b.project.String()), cmp.Compare(a.step, b.step),
			a.start.Compare(b.start), cmp.Compare(a.kind, b.kind))
	})
	added, err := tx.Exec(ctx, `insert into ops.request_counts as c (project_id, step, start, kind, calls, credit_tenths)
		select * from unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[])
		on conflict (project_id, step, start, kind) do update
			set calls = c.calls + excluded.calls, credit_tenths = c.credit_tenths + excluded.credit_tenths`,
		pgarray.IDs(list, func(k key) uuid.UUID { return k.project }),
		pgarray.Column(list, func(k key) int { return k.step }),
		pgarray.Column(list, func(k key) time.Time { return k.start }),
		pgarray.Column(list, func(k key) int64 { return k.kind }),
		pgarray.Column(list, func(k key) int64 { return counts[k] }),
		pgarray.Column(list, func(k key) int64 { return tenths[k] }))
	if err == nil && added.RowsAffected() != int64(len(list)) {
		err = errors.New("not every count was written")
	}
	return err
}
