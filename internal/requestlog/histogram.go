package requestlog

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

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
