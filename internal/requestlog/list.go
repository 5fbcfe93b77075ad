package requestlog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// scanned is the most rows of a window that a page is read from by time. In a window with more rows
// it is read by kind.
const scanned = 5000

// reading is one read of a list or histogram, in one snapshot.
type reading struct {
	tx      pgx.Tx
	project uuid.UUID
	q       Query
	// kinds are those of the project that match the filters, and the key names that Search matches. nil
	// means that nothing is filtered.
	kinds []int64
	// others are the kinds that match all filters but Search; nil without Search.
	others []int64
	// found is the request that Search is the id of, and its time.
	found   uuid.UUID
	foundAt time.Time
}

// read runs work on the kinds that a query selects.
func (l *Log) read(ctx context.Context, project uuid.UUID, q Query, work func(r *reading) error) error {
	return pgx.BeginTxFunc(ctx, l.DB, snapshot, func(tx pgx.Tx) error {
		r := &reading{tx: tx, project: project, q: q}
		if at, err := uuid.Parse(q.Search); err == nil && len(q.Search) == 36 {
			if millis, ok := timeOf(at); ok {
				r.found, r.foundAt = at, millis
			}
		}
		if err := r.selectKinds(ctx); err != nil {
			return err
		}
		return work(r)
	})
}

// selectKinds finds the kinds that match the filters.
func (r *reading) selectKinds(ctx context.Context) error {
	q := r.q
	if len(q.Statuses)+len(q.Classes)+len(q.Endpoints)+len(q.KeyNames)+len(q.Webhooks) == 0 && q.Search == "" {
		return nil
	}
	rows, err := r.tx.Query(ctx, `select kind, key_name from ops.request_kinds where project_id = $1
		and (cardinality($2::int[]) = 0 or status = any($2)) and (cardinality($3::int[]) = 0 or status / 100 = any($3))
		and (cardinality($4::text[]) = 0 or endpoint = any($4)) and (cardinality($5::text[]) = 0 or key_name = any($5))
		and (cardinality($6::text[]) = 0 or endpoint = $7 and key_prefix = any($6))`, r.project, list(q.Statuses),
		list(q.Classes), list(q.Endpoints), list(q.KeyNames), list(q.Webhooks), EventEndpoint)
	if err != nil {
		return err
	}
	r.kinds = []int64{}
	wanted := strings.ToLower(q.Search)
	var kind int64
	var name string
	_, err = pgx.ForEachRow(rows, []any{&kind, &name}, func() error {
		if strings.Contains(strings.ToLower(name), wanted) {
			r.kinds = append(r.kinds, kind)
		} else {
			r.others = append(r.others, kind)
		}
		return nil
	})
	return err
}

// list returns an array that is never null.
func list[T any](values []T) []T {
	if values == nil {
		return []T{}
	}
	return values
}

// count is how many calls began in a step.
type count struct {
	start              time.Time
	step               step
	accepted, rejected int64
}

func (c count) calls() int64 { return c.accepted + c.rejected }

// counts returns the calls of the window and the kinds of the query, by steps of at most most. A
// count outside of the whole minutes has step 0 and the time of its calls.
func (r *reading) counts(ctx context.Context, most step) ([]count, error) {
	var counts []count
	for _, s := range segmentsOf(r.q.From, r.q.To, most) {
		sql := `select c.start, sum(c.calls) filter (where k.status < 400), sum(c.calls) filter (where k.status >= 400)
			from ops.request_counts c join ops.request_kinds k using (kind)
			where c.project_id = $1 and c.start >= $2 and c.start < $3 and c.step = $5
				and ($4::bigint[] is null or c.kind = any($4)) group by c.start`
		if s.step == 0 {
			sql = `select r.received_at, count(*) filter (where k.status < 400), count(*) filter (where k.status >= 400)
				from ops.requests r join ops.request_kinds k using (kind)
				where r.project_id = $1 and r.received_at >= $2 and r.received_at < $3 and $5 = 0
					and ($4::bigint[] is null or r.kind = any($4)) group by r.received_at`
		}
		rows, err := r.tx.Query(ctx, sql, r.project, s.from, s.to, r.kinds, int(s.step))
		if err != nil {
			return nil, err
		}
		var accepted, rejected *int64
		c := count{step: s.step}
		_, err = pgx.ForEachRow(rows, []any{&c.start, &accepted, &rejected}, func() error {
			c.accepted, c.rejected = value(accepted), value(rejected)
			counts = append(counts, c)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// List reads a page of calls, newest first, and counts all calls of the window.
func (l *Log) List(ctx context.Context, project uuid.UUID, q Query) (Page, error) {
	var page Page
	err := l.read(ctx, project, q, func(r *reading) error {
		counts, err := r.counts(ctx, steps[len(steps)-1])
		if err != nil {
			return err
		}
		for _, c := range counts {
			page.TotalCount += c.calls()
		}
		entries, err := r.byKinds(ctx, counts)
		if err != nil {
			return err
		}
		if q.Search != "" {
			others, n, err := r.bySearch(ctx)
			if err != nil {
				return err
			}
			page.TotalCount += n
			entries = merge(entries, others)
		}
		page.HasMore = len(entries) > q.First
		page.Entries = entries[:min(len(entries), q.First)]
		return nil
	})
	if err != nil {
		return Page{}, fmt.Errorf("list logged calls: %w", err)
	}
	if n := len(page.Entries); n > 0 {
		last := page.Entries[n-1]
		page.EndCursor = &Cursor{At: last.ReceivedAt, ID: last.RequestID}
	}
	return page, nil
}

// end is where the calls of a page begin, going back: a place that is not part of it.
func (r *reading) end() Cursor {
	if after := r.q.After; after != nil && after.At.Before(r.q.To) {
		return *after
	}
	return Cursor{At: r.q.To}
}

// since returns an instant after which, up to the end of the page, there are calls enough for a page,
// or the beginning of the window.
func (r *reading) since(counts []count) time.Time {
	end, need := r.end().At, int64(r.q.First)+1
	longest := steps[len(steps)-1]
	byStart := map[time.Time]int64{}
	for _, c := range counts {
		if !c.start.Add(c.step.duration()).After(end) {
			byStart[longest.floor(c.start)] += c.calls()
		}
	}
	for at := longest.floor(end); at.After(r.q.From); at = at.Add(-longest.duration()) {
		if need -= byStart[at]; need <= 0 {
			return at
		}
	}
	return r.q.From
}

const before = ` and r.received_at >= $2 and r.received_at <= $3 and (r.received_at, r.request_id) < ($3, $4)
	order by r.received_at desc, r.request_id desc limit $5`

// byKinds reads the newest calls of the kinds, one more than the page has.
func (r *reading) byKinds(ctx context.Context, counts []count) ([]Entry, error) {
	since, end := r.since(counts), r.end()
	if r.kinds == nil {
		return r.entries(ctx, `ops.requests r join ops.request_kinds k using (kind) where r.project_id = $1`+before,
			r.project, since, end.At, end.ID, r.q.First+1)
	}
	if len(r.kinds) == 0 {
		return nil, nil
	}
	var rows int64
	err := r.tx.QueryRow(ctx, `select coalesce(sum(calls), 0)::bigint from ops.request_counts
		where project_id = $1 and step = $2 and start >= $3 and start <= $4`,
		r.project, int(steps[len(steps)-1]), steps[len(steps)-1].floor(since), end.At).Scan(&rows)
	if err != nil {
		return nil, err
	}
	if rows <= scanned {
		return r.entries(ctx, `ops.requests r join ops.request_kinds k using (kind)
			where r.project_id = $1 and r.kind = any($6)`+before, r.project, since, end.At, end.ID, r.q.First+1, r.kinds)
	}
	return r.entries(ctx, `(select r.* from unnest($6::bigint[]) w (kind) cross join lateral (
			select * from ops.requests r where r.kind = w.kind and r.project_id = $1`+before+`) r
		) r join ops.request_kinds k using (kind) where true`+before,
		r.project, since, end.At, end.ID, r.q.First+1, r.kinds)
}

// searched are the keys of the calls of the window whose id or data point is searched for, and whose
// kind matches the other filters. Each is found by its own index before kinds are looked at: in one
// condition with the kinds, Postgres reads all calls of these kinds instead.
const searched = `with found as materialized (
		select received_at, request_id, kind from ops.requests
		where project_id = $1 and received_at >= $2 and received_at < $3 and ids @> array[$5::uuid]
		union
		select received_at, request_id, kind from ops.requests
		where project_id = $1 and received_at >= greatest($2, $7) and received_at < least($3, $8) and request_id = $6
	), searched as (select received_at, request_id, kind from found where kind = any($4)) `

// searchedArgs are the first eight arguments of a query that begins with searched.
func (r *reading) searchedArgs() []any {
	return []any{
		r.project, r.q.From, r.q.To, list(r.others), r.q.SearchPoint, r.found, r.foundAt, r.foundAt.Add(time.Millisecond),
	}
}

// bySearch reads the newest calls whose id or data point is searched for, if no key name matches, one
// more than the page has, and counts them all.
func (r *reading) bySearch(ctx context.Context) (entries []Entry, n int64, err error) {
	end := r.end()
	rows, err := r.tx.Query(ctx, searched+`select n, received_at, request_id from (select count(*) n from searched) t
		left join (
			select received_at, request_id from searched where (received_at, request_id) < ($9, $10)
			order by received_at desc, request_id desc limit $11
		) s on true`, append(r.searchedArgs(), end.At, end.ID, r.q.First+1)...)
	if err != nil {
		return nil, 0, err
	}
	var times []time.Time
	var ids []uuid.UUID
	var at *time.Time
	var id *uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&n, &at, &id}, func() error {
		if at != nil {
			times, ids = append(times, *at), append(ids, *id)
		}
		return nil
	})
	if err != nil || len(ids) == 0 {
		return nil, n, err
	}
	entries, err = r.entries(ctx, `unnest($2::timestamptz[], $3::uuid[]) s (received_at, request_id)
		join ops.requests r on r.project_id = $1 and r.received_at = s.received_at and r.request_id = s.request_id
		join ops.request_kinds k using (kind) order by r.received_at desc, r.request_id desc`, r.project, times, ids)
	return entries, n, err
}

func (r *reading) entries(ctx context.Context, from string, args ...any) ([]Entry, error) {
	rows, err := r.tx.Query(ctx, `select `+entryColumns+` from `+from, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entry, err error) {
		err = e.scan(row)
		return e, err
	})
}

// merge merges two lists that are sorted newest first.
func merge(a, b []Entry) []Entry {
	merged := make([]Entry, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if newer(a[0], b[0]) {
			merged, a = append(merged, a[0]), a[1:]
		} else {
			merged, b = append(merged, b[0]), b[1:]
		}
	}
	return append(append(merged, a...), b...)
}

func newer(a, b Entry) bool {
	if d := a.ReceivedAt.Compare(b.ReceivedAt); d != 0 {
		return d > 0
	}
	return strings.Compare(string(a.RequestID[:]), string(b.RequestID[:])) > 0
}

// Histogram counts the calls of a window by the time that they were received. Its buckets begin at
// multiples of their length in UTC; the first and the last may reach beyond the window, but count
// only what is in it. After and First are ignored.
func (l *Log) Histogram(ctx context.Context, project uuid.UUID, q Query) (Histogram, error) {
	bucket := bucketOf(q.From, q.To)
	h := Histogram{BucketMinutes: int(bucket), Buckets: []Bucket{}}
	for at := bucket.floor(q.From); at.Before(q.To); at = at.Add(bucket.duration()) {
		h.Buckets = append(h.Buckets, Bucket{Start: at})
	}
	if len(h.Buckets) == 0 {
		return h, nil
	}
	at := func(when time.Time) *Bucket {
		return &h.Buckets[bucket.floor(when).Sub(h.Buckets[0].Start)/bucket.duration()]
	}
	err := l.read(ctx, project, q, func(r *reading) error {
		longest := bucket
		if longest%steps[1] != 0 {
			longest = steps[0]
		} else if longest%steps[2] != 0 {
			longest = steps[1]
		}
		counts, err := r.counts(ctx, longest)
		if err != nil {
			return err
		}
		for _, c := range counts {
			b := at(c.start)
			b.Accepted += c.accepted
			b.Rejected += c.rejected
		}
		if q.Search != "" {
			if err := r.searchOutcomes(ctx, func(when time.Time, accepted bool) {
				if accepted {
					at(when).Accepted++
				} else {
					at(when).Rejected++
				}
			}); err != nil {
				return err
			}
		}
		return r.failedLater(ctx, l.FailedSends, func(when time.Time) {
			at(when).Accepted--
			at(when).FailedLater++
		})
	})
	if err != nil {
		return Histogram{}, fmt.Errorf("count logged calls: %w", err)
	}
	for _, b := range h.Buckets {
		h.Totals.Accepted += b.Accepted
		h.Totals.FailedLater += b.FailedLater
		h.Totals.Rejected += b.Rejected
	}
	return h, nil
}

// searchOutcomes calls add for each call whose id or data point is searched for, if no key name
// matches.
func (r *reading) searchOutcomes(ctx context.Context, add func(when time.Time, accepted bool)) error {
	rows, err := r.tx.Query(ctx, searched+`select s.received_at, k.status < 400
		from searched s join ops.request_kinds k using (kind)`, r.searchedArgs()...)
	if err != nil {
		return err
	}
	var when time.Time
	var accepted bool
	_, err = pgx.ForEachRow(rows, []any{&when, &accepted}, func() error { add(when, accepted); return nil })
	return err
}

// failedLater calls add for each call of the query whose send failed.
func (r *reading) failedLater(ctx context.Context, failed string, add func(when time.Time)) error {
	if failed == "" {
		return nil
	}
	rows, err := r.tx.Query(ctx, `select r.received_at from (`+failed+`) f (id)
		join ops.requests r on r.ingestion_id = f.id join ops.request_kinds k using (kind)
		where r.project_id = $1 and r.received_at >= $2 and r.received_at < $3 and k.status < 400
			and ($4::bigint[] is null or r.kind = any($4)
				or r.kind = any($7) and (r.ids @> array[$5::uuid] or r.request_id = $6))`,
		r.project, r.q.From, r.q.To, r.kinds, r.q.SearchPoint, r.found, list(r.others))
	if err != nil {
		return err
	}
	var when time.Time
	_, err = pgx.ForEachRow(rows, []any{&when}, func() error { add(when); return nil })
	return err
}
