package requestlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
	rows, err := b.DB.Query(ctx, `select n from unnest($1::text[]) n where to_regclass('ops.' || n) is not null`, names)
	if err != nil {
		return nil, fmt.Errorf("list partitions to vacuum: %w", err)
	}
	tables, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id pgx.Identifier, err error) {
		id = pgx.Identifier{"ops", ""}
		err = row.Scan(&id[1])
		return id, err
	})
	if err != nil {
		return nil, fmt.Errorf("list partitions to vacuum: %w", err)
	}
	return tables, nil
}
