package requestlog

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// CountBodies counts the calls of a project whose bodies are stored, up to a number.
func (l *Log) CountBodies(ctx context.Context, project uuid.UUID, most int) (n int, err error) {
	err = l.DB.QueryRow(ctx, `select count(*) from (select from ops.request_payloads where project_id = $1 limit $2) p`,
		project, most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count bodies of calls: %w", err)
	}
	return n, nil
}

// DroppedEvents returns events of some webhooks of a project that were dropped since a time and can be replayed: their
// body is stored whole, and no replay of them is marked. The oldest are first, at most limit.
func (l *Log) DroppedEvents(
	ctx context.Context, project uuid.UUID, webhooks []string, since time.Time, limit int,
) (events []Event, err error) {
	rows, err := l.DB.Query(ctx, `select `+entryColumns+`, r.request_bytes, r.plan, true, false, p.request is null
		from ops.requests r join ops.request_kinds k using (kind)
		join ops.request_payloads p on p.project_id = r.project_id and p.received_at = r.received_at
			and p.request_id = r.request_id and p.received_at >= $4
		where r.project_id = $1 and r.received_at >= $4 and not p.request_truncated and r.kind in (
			select kind from ops.request_kinds where project_id = $1 and endpoint = $2 and status = $3
				and key_prefix = any($6::text[])
		) and r.webhook::jsonb ->> 'replayedAs' is null
		order by r.received_at, r.request_id limit $5`, project, EventEndpoint, Dropped, since, limit, list(webhooks))
	if err == nil {
		events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
			return e, e.scan(row, &e.Bytes, &e.Plan, &e.Stored, &e.Cut, &e.Empty)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list dropped events: %w", err)
	}
	return events, nil
}

// MarkReplayed notes at an event of a webhook by which call it was replayed.
func (l *Log) MarkReplayed(ctx context.Context, event Entry, as uuid.UUID) error {
	_, err := l.DB.Exec(ctx, `update ops.requests
		set webhook = jsonb_set(webhook::jsonb, '{replayedAs}', to_jsonb($4::text))::text
		where project_id = $1 and received_at = $2 and request_id = $3 and webhook is not null`,
		event.Project, event.ReceivedAt, event.RequestID, as.String())
	if err != nil {
		return fmt.Errorf("mark a replayed event: %w", err)
	}
	return nil
}
