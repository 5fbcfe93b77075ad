package requestlog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/cursor"
	"github.com/annals-project/annals/internal/statement"
)

// snapshot is a transaction whose statements see the same rows, so that counts and pages agree. Each
// statement is planned for its arguments: a plan for any window expects it to be short, and reads all
// calls of a long one.
var snapshot = pgx.TxOptions{
	BeginQuery: "begin isolation level repeatable read read only; set local plan_cache_mode = force_custom_plan",
}

// entryColumns are the columns of an Entry, of ops.requests r and ops.request_kinds k.
const entryColumns = `r.request_id, r.project_id, r.received_at, k.endpoint, k.status, k.error_code, k.key_name,
	k.key_prefix, r.path, case when k.endpoint like '%` + sourceParameter + `' or r.webhook is not null then r.ids[1] end,
	r.duration_us, r.identity, r.ingestion_id, r.credit_tenths, r.webhook, r.person_id`

// scan reads entryColumns and more.
func (e *Entry) scan(row pgx.CollectableRow, more ...any) error {
	var micros int64
	var webhook *string
	if err := row.Scan(append([]any{
		&e.RequestID, &e.Project, &e.ReceivedAt, &e.Endpoint, &e.Status, &e.ErrorCode, &e.Key.Name,
		&e.Key.Prefix, &e.Path, &e.DataPoint, &micros, &e.Identity, &e.IngestionID, &e.CreditTenths, &webhook,
		&e.Person,
	}, more...)...); err != nil {
		return err
	}
	e.Method = methodOf(e.Endpoint)
	e.Duration = time.Duration(micros) * time.Microsecond
	var err error
	e.Webhook, err = webhookOf(webhook)
	return err
}

// Get reads one call. The fault is not-found if the project has no such call.
func (l *Log) Get(ctx context.Context, project, requestID uuid.UUID) (Call, error) {
	at, ok := timeOf(requestID)
	if !ok {
		return Call{}, notFound(requestID)
	}
	var c Call
	rows, err := l.DB.Query(ctx, `select `+entryColumns+`, r.request_bytes, r.response_bytes, r.request_headers,
			r.response_headers, r.plan, r.ids, p.request_id is not null, p.request, p.response,
			coalesce(p.request_truncated, false), coalesce(p.response_truncated, false)
		from ops.requests r join ops.request_kinds k using (kind)
		left join ops.request_payloads p on p.project_id = r.project_id and p.received_at = r.received_at
			and p.request_id = r.request_id and p.received_at >= $3 and p.received_at < $4
		where r.project_id = $1 and r.request_id = $2 and r.received_at >= $3 and r.received_at < $4`,
		project, requestID, at, at.Add(time.Millisecond))
	if err != nil {
		return Call{}, fmt.Errorf("read a logged call: %w", err)
	}
	_, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var stored bool
		var body Payload
		err := c.scan(row, &c.RequestBytes, &c.ResponseBytes, &c.RequestHeaders, &c.ResponseHeaders, &c.Plan, &c.IDs,
			&stored, &body.Request, &body.Response, &body.RequestTruncated, &body.ResponseTruncated)
		if err != nil || !stored {
			return struct{}{}, err
		}
		if body.Request, err = unpack(body.Request); err == nil {
			body.Response, err = unpack(body.Response)
		}
		c.Payload = &body
		return struct{}{}, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Call{}, notFound(requestID)
	}
	if err != nil {
		return Call{}, fmt.Errorf("read a logged call: %w", err)
	}
	return c, nil
}

// Logged returns which of some requests of a project the log has.
func (l *Log) Logged(ctx context.Context, project uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	var times []time.Time
	var known []uuid.UUID
	for _, id := range ids {
		if at, ok := timeOf(id); ok {
			times, known = append(times, at), append(known, id)
		}
	}
	logged := map[uuid.UUID]bool{}
	if len(known) == 0 {
		return logged, nil
	}
	rows, _ := l.DB.Query(ctx, `select r.request_id from unnest($2::uuid[], $3::timestamptz[]) as asked (id, at)
		join ops.requests r on r.project_id = $1 and r.request_id = asked.id and r.received_at >= asked.at
			and r.received_at < asked.at + interval '1 millisecond'`, project, known, times) // ForEachRow returns the error
	var id uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { logged[id] = true; return nil }); err != nil {
		return nil, fmt.Errorf("look for logged calls: %w", err)
	}
	return logged, nil
}

func notFound(requestID uuid.UUID) error {
	return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no logged request %s", requestID)
}

// timeOf returns the milliseconds that a UUIDv7 holds. The time that a logged call was received is in
// this millisecond.
func timeOf(id uuid.UUID) (time.Time, bool) {
	if id.Version() != 7 {
		return time.Time{}, false
	}
	var millis int64
	for _, b := range id[:6] {
		millis = millis<<8 | int64(b)
	}
	if millis > cursor.MaxMicros/1000 {
		return time.Time{}, false
	}
	return time.UnixMilli(millis).UTC(), true
}

// Hits returns the newest recalls in [from, to) that returned any of the nodes, one Hit for each of
// these nodes, at most limit. A node is a memory, or the node of a source.
func (l *Log) Hits(
	ctx context.Context, project uuid.UUID, nodes []uuid.UUID, from, to time.Time, limit int,
) ([]Hit, error) {
	if len(nodes) == 0 || limit <= 0 {
		return nil, nil
	}
	var hits []Hit
	// The recalls are found by the index of ids before they are ordered: for an ordered page Postgres
	// would read all calls back from the newest.
	err := pgx.BeginTxFunc(ctx, l.DB, snapshot, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `with returned as materialized (
				select received_at, request_id from ops.requests where project_id = $1 and ids && $2::uuid[]
					and hits && $2::uuid[] and received_at >= $3 and received_at < $4
			)
			select r.request_id, r.received_at, coalesce(r.identity, ''), n.node, array_position(r.hits, n.node)
			from (select * from returned order by received_at desc, request_id desc limit $5) s
			join ops.requests r on r.project_id = $1 and r.received_at = s.received_at and r.request_id = s.request_id
			cross join lateral (select h.node from unnest(r.hits) h (node) where h.node = any($2::uuid[])) n
			order by r.received_at desc, r.request_id desc, 5 limit $5`, project, nodes, from, to, limit)
		if err != nil {
			return err
		}
		hits, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Hit])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read recalls that returned nodes: %w", err)
	}
	return hits, nil
}

// RecalledAs returns the newest recalls in [from, to) as an identity, at most limit. Their hits have no node and no
// rank.
func (l *Log) RecalledAs(
	ctx context.Context, project uuid.UUID, identity string, from, to time.Time, limit int,
) ([]Hit, error) {
	identity = redactText(identity, maxIdentity) // as the log stores it
	return statement.All(ctx, l.DB, pgx.RowToStructByPos[Hit], `select request_id, received_at, identity, $6::uuid, 0
		from ops.requests
		where identity_key = $1 and project_id = $2 and identity = $3 and received_at >= $4 and received_at < $5
		order by received_at desc, request_id desc limit $7`,
		identityKey(project, identity), project, identity, from, to, uuid.Nil, limit)
}

// Recalled returns the newest recalls in [from, to) that returned a data point, a passage or a memory of it, at most
// limit. Their hits have no node and no rank.
func (l *Log) Recalled(
	ctx context.Context, project, dataPoint uuid.UUID, from, to time.Time, limit int,
) (hits []Hit, err error) {
	err = pgx.BeginTxFunc(ctx, l.DB, snapshot, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `with returned as materialized (
				select request_id, received_at, coalesce(identity, '') as identity from ops.requests
				where project_id = $1 and ids @> array[$2::uuid] and hits is not null and received_at >= $3 and received_at < $4
			)
			select *, $5::uuid, 0 from returned order by received_at desc, request_id desc limit $6`,
			project, dataPoint, from, to, uuid.Nil, limit)
		if err != nil {
			return err
		}
		hits, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Hit])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read recalls that returned a data point: %w", err)
	}
	return hits, nil
}

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
	// ForEachRow returns the error.
	rows, _ := l.DB.Query(ctx, `with kinds as materialized (
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
	of := map[string]Activity{}
	var id string
	var a Activity
	_, err := pgx.ForEachRow(rows, []any{&id, &a.LastAt, &a.Ingested, &a.Dropped, &a.Refused}, func() error {
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

func scanEvent(row pgx.CollectableRow) (e Event, err error) {
	err = e.scan(row, &e.Bytes, &e.Plan, &e.Stored, &e.Cut, &e.Empty)
	return e, err
}

// Events returns the newest events of a webhook, at most limit.
func (l *Log) Events(ctx context.Context, project uuid.UUID, webhook string, limit int) ([]Event, error) {
	return statement.All(ctx, l.DB, scanEvent, `select `+entryColumns+`, r.request_bytes, r.plan, p.request_id is not null,
			coalesce(p.request_truncated, false), p.request is null
		from (select kind from ops.request_kinds where project_id = $1 and endpoint = $2 and key_prefix = $3) w
		cross join lateral (
			select * from ops.requests r where r.kind = w.kind and r.project_id = $1
			order by received_at desc, request_id desc limit $4
		) r join ops.request_kinds k on k.kind = r.kind
		left join ops.request_payloads p on p.project_id = $1 and p.received_at = r.received_at
			and p.request_id = r.request_id
		order by r.received_at desc, r.request_id desc limit $4`, project, EventEndpoint, webhook, limit)
}

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
) ([]Event, error) {
	return statement.All(ctx, l.DB, scanEvent, `select `+entryColumns+`, r.request_bytes, r.plan, true, false, p.request is null
		from ops.requests r join ops.request_kinds k using (kind)
		join ops.request_payloads p on p.project_id = r.project_id and p.received_at = r.received_at
			and p.request_id = r.request_id and p.received_at >= $4
		where r.project_id = $1 and r.received_at >= $4 and not p.request_truncated and r.kind in (
			select kind from ops.request_kinds where project_id = $1 and endpoint = $2 and status = $3
				and key_prefix = any($6::text[])
		) and r.webhook::jsonb ->> 'replayedAs' is null
		order by r.received_at, r.request_id limit $5`, project, EventEndpoint, Dropped, since, limit, list(webhooks))
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

// Cost is what the calls of a project with a key were charged on a day (UTC).
type Cost struct {
	Day       time.Time
	Project   uuid.UUID
	Key       Key
	CallCount int64
	// CreditTenths is 0 without metering.
	CreditTenths int64
}

// maxCosts bounds a list of costs.
const maxCosts = 10_000

// Costs lists what the calls of some projects were charged on the days that hold from, to, or are between them, by day,
// the highest charges first. more is true if there are others, after the last one listed. The fault is range-too-wide.
func (l *Log) Costs(
	ctx context.Context, projects []uuid.UUID, from, to time.Time,
) (list []Cost, more bool, err error) {
	first, last := dayOf(from), dayOf(to)
	if last.Sub(first) > MaxRange {
		return nil, false, fault.New(fault.Invalid, fault.CodeRangeTooWide, "the days are more than 31: choose fewer")
	}
	list, err = statement.All(ctx, l.DB, func(row pgx.CollectableRow) (c Cost, err error) {
		err = row.Scan(&c.Day, &c.Project, &c.Key.Name, &c.Key.Prefix, &c.CallCount, &c.CreditTenths)
		c.Day = c.Day.UTC()
		return c, err
	}, `select date_trunc('day', c.start at time zone 'UTC') at time zone 'UTC', c.project_id, k.key_name, k.key_prefix,
			sum(c.calls)::bigint, sum(c.credit_tenths)::bigint
		from ops.request_counts c join ops.request_kinds k using (kind)
		where c.project_id = any($1) and c.step = $2 and c.start >= $3 and c.start < $4
		group by 1, 2, 3, 4 order by 1, 6 desc, 5 desc, 2, 3, 4 limit $5`,
		projects, int(steps[len(steps)-1]), first, last.AddDate(0, 0, 1), maxCosts+1)
	if err != nil {
		return nil, false, err
	}
	return list[:min(len(list), maxCosts)], len(list) > maxCosts, nil
}

// maxUses is the most kinds of calls whose last call LastUses looks for.
const maxUses = 5000

// LastUses returns when each key of a project was used last, within the retention. Keys of one name whose values also
// begin alike are one. Refused calls count: who has the key tries it.
func (l *Log) LastUses(ctx context.Context, project uuid.UUID) (map[Key]time.Time, error) {
	rows, _ := l.DB.Query(ctx, `select k.key_name, k.key_prefix, max(r.received_at)
		from (select kind, key_name, key_prefix from ops.request_kinds where project_id = $1 and key_prefix <> ''
			order by kind desc limit $2) k
		cross join lateral (select received_at from ops.requests where kind = k.kind order by received_at desc limit 1) r
		group by 1, 2`, project, maxUses) // ForEachRow returns the error
	uses := map[Key]time.Time{}
	var key Key
	var at time.Time
	_, err := pgx.ForEachRow(rows, []any{&key.Name, &key.Prefix, &at}, func() error {
		uses[key] = at.UTC()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read last uses of keys: %w", err)
	}
	return uses, nil
}
