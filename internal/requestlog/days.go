package requestlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/schemas"
)

// lockDays takes the advisory lock between processes that create or drop partitions.
const lockDays = `select pg_advisory_xact_lock(x'616e6e616c75'::bigint # ` + schemas.LockKey + `)`

// partitioned are the tables with a partition for each day, and their columns with customer text, of
// which Postgres keeps no statistics: they would hold whole values.
var partitioned = []struct {
	table   string
	columns []string
}{
	{
		"requests",
		[]string{"path", "identity", "identity_key", "request_headers", "response_headers", "webhook", "ids", "hits"},
	},
	{"request_payloads", []string{"request", "response"}},
}

const dayFormat = "20060102"

func dayOf(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

func partition(table string, day time.Time) string { return table + "_" + day.Format(dayFormat) }

// createDay creates the partitions of a day if they do not exist.
func createDay(ctx context.Context, db *pgxpool.Pool, day time.Time) error {
	err := pgx.BeginTxFunc(ctx, db, ddl, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockDays); err != nil {
			return err
		}
		for _, p := range partitioned {
			name := partition(p.table, day)
			var exists bool
			if err := tx.QueryRow(ctx, `select to_regclass('ops.' || $1) is not null`, name).Scan(&exists); err != nil {
				return err
			}
			if exists {
				continue
			}
			// Attaching does not lock readers and writers of the table out, creating as a partition does.
			sql := fmt.Sprintf(`create table ops.%[1]s (like ops.%[2]s including defaults);
				alter table ops.%[2]s attach partition ops.%[1]s for values from ('%[3]s') to ('%[4]s');`,
				name, p.table, day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339))
			for _, c := range p.columns {
				sql += fmt.Sprintf(`alter table ops.%s alter %s set statistics 0;`, name, c)
			}
			if p.table == "request_payloads" {
				sql += fmt.Sprintf(`alter table ops.%[1]s alter request set storage external,
					alter response set storage external;`, name)
			}
			if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("create partitions of %s: %w", day.Format(time.DateOnly), err)
	}
	return nil
}

// ddl begins a transaction that changes partitions. It waits briefly for locks: calls that come after
// it wait as long.
var ddl = pgx.TxOptions{BeginQuery: `begin isolation level read committed; set local lock_timeout = '3s'`}
