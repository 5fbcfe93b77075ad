package requestlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/cursor"
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
	rows, err := l.DB.Query(ctx, `select r.request_id from unnest($2::uuid[], $3::timestamptz[]) as asked (id, at)
		join ops.requests r on r.project_id = $1 and r.request_id = asked.id and r.received_at >= asked.at
			and r.received_at < asked.at + interval '1 millisecond'`, project, known, times)
	if err != nil {
		return nil, fmt.Errorf("look for logged calls: %w", err)
	}
	var id uuid.UUID
	if _, err = pgx.ForEachRow(rows, []any{&id}, func() error { logged[id] = true; return nil }); err != nil {
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
	rows, err := l.DB.Query(ctx, `select request_id, received_at, identity, $6::uuid, 0 from ops.requests
		where identity_key = $1 and project_id = $2 and identity = $3 and received_at >= $4 and received_at < $5
		order by received_at desc, request_id desc limit $7`,
		identityKey(project, identity), project, identity, from, to, uuid.Nil, limit)
	if err != nil {
		return nil, fmt.Errorf("read recalls as an identity: %w", err)
	}
	hits, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Hit])
	if err != nil {
		return nil, fmt.Errorf("read recalls as an identity: %w", err)
	}
	return hits, nil
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
