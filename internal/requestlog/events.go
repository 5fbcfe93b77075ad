package requestlog

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// EventEndpoint is the endpoint of the events of webhooks. The key of such a call has the id of the webhook as prefix.
const EventEndpoint = "POST /api/v1/webhooks/{webhookId}/{token}"

// The statuses of events that were not refused.
const (
	Ingested = http.StatusAccepted
	Dropped  = http.StatusOK
)

// Activity is what a webhook received. Events beyond the limit of a minute have no row, and are in no count.
type Activity struct {
	// LastAt is when the last event came, nil if there is none in the log.
	LastAt   *time.Time `json:"lastAt"`
	Ingested int64      `json:"ingested"`
	Dropped  int64      `json:"dropped"`
	Refused  int64      `json:"refused"`
}

// Activity returns what webhooks of a project received: their last event, and their events in [from, to), both widened
// to whole minutes. A webhook without any event in the log is not in the map.
func (l *Log) Activity(
	ctx context.Context, project uuid.UUID, webhooks []string, from, to time.Time,
) (map[string]Activity, error) {
	minute := steps[0]
	var since, until []time.Time
	var lengths []int
	for _, s := range segmentsOf(minute.floor(from), minute.floor(to.Add(minute.duration()-1)), steps[len(steps)-1]) {
		since, until, lengths = append(since, s.from), append(until, s.to), append(lengths, int(s.step))
	}
	rows, err := l.DB.Query(ctx, `with kinds as materialized (
			select kind, key_prefix, status from ops.request_kinds
			where project_id = $1 and endpoint = $2 and key_prefix = any($3::text[])
		), counted as (
			select kind, sum(calls)::bigint as calls
			from unnest($4::timestamptz[], $5::timestamptz[], $6::int[]) s (since, until, step)
			join ops.request_counts c on c.project_id = $1 and c.step = s.step and c.start >= since and c.start < until
			where kind in (select kind from kinds) group by kind
		)
		select k.key_prefix, max(r.received_at), coalesce(sum(calls) filter (where status = $7), 0)::bigint,
			coalesce(sum(calls) filter (where status = $8), 0)::bigint, coalesce(sum(calls) filter (where status >= 400), 0)::bigint
		from kinds k left join counted using (kind) left join lateral (
			select received_at from ops.requests r where r.kind = k.kind and r.project_id = $1
			order by received_at desc limit 1
		) r on true group by k.key_prefix`,
		project, EventEndpoint, list(webhooks), list(since), list(until), list(lengths), Ingested, Dropped)
	if err != nil {
		return nil, fmt.Errorf("count events of webhooks: %w", err)
	}
	of := map[string]Activity{}
	var id string
	var a Activity
	_, err = pgx.ForEachRow(rows, []any{&id, &a.LastAt, &a.Ingested, &a.Dropped, &a.Refused}, func() error {
		of[id] = a
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count events of webhooks: %w", err)
	}
	return of, nil
}

// Event is a logged event of a webhook, without its body.
type Event struct {
	Entry
	// Bytes are those of the body as it came. Stored is false if the body is not kept, or no longer; Cut is true if only
	// its beginning is, and Empty if nothing of it is.
	Bytes              int64
	Stored, Cut, Empty bool
	// Plan decides how long the body is kept.
	Plan string
}

// Events returns the newest events of a webhook, at most limit.
func (l *Log) Events(ctx context.Context, project uuid.UUID, webhook string, limit int) (events []Event, err error) {
	rows, err := l.DB.Query(ctx, `select `+entryColumns+`, r.request_bytes, r.plan, p.request_id is not null,
			coalesce(p.request_truncated, false), p.request is null
		from (select kind from ops.request_kinds where project_id = $1 and endpoint = $2 and key_prefix = $3) w
		cross join lateral (
			select * from ops.requests r where r.kind = w.kind and r.project_id = $1
			order by received_at desc, request_id desc limit $4
		) r join ops.request_kinds k on k.kind = r.kind
		left join ops.request_payloads p on p.project_id = $1 and p.received_at = r.received_at
			and p.request_id = r.request_id
		order by r.received_at desc, r.request_id desc limit $4`, project, EventEndpoint, webhook, limit)
	if err == nil {
		events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
			return e, e.scan(row, &e.Bytes, &e.Plan, &e.Stored, &e.Cut, &e.Empty)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list events of a webhook: %w", err)
	}
	return events, nil
}
