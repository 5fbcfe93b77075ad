package requestlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/pg/schemas"
	"github.com/annals-project/annals/internal/statement"
)

// Maintainer creates the partitions of the coming days and removes what is too old. Several processes
// may run one each.
type Maintainer struct {
	DB    *pgxpool.Pool
	Terms metering.PlanTerms
	Log   *slog.Logger
	Now   func() time.Time

	// deleted is up to when a plan's bodies were deleted, less an hour for calls that were written
	// late. The first round of a process looks at all of them.
	deleted map[metering.Plan]time.Time
}

const (
	// maintainEvery is the pause between two rounds, maintainTimeout bounds one of them.
	maintainEvery   = 10 * time.Minute
	maintainTimeout = 5 * time.Minute
	// ahead is how many days have partitions before they begin.
	ahead = 3
)

// Run maintains the tables until the context ends.
func (m *Maintainer) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, maintainTimeout)
		err := m.Maintain(limited)
		cancel()
		if err != nil && ctx.Err() == nil {
			m.Log.ErrorContext(ctx, "request log maintenance failed, will retry", "err", err)
		}
		_ = backoff.Pause(ctx, maintainEvery, nil)
	}
	return nil
}

// Maintain does one round.
func (m *Maintainer) Maintain(ctx context.Context) error {
	now := m.Now()
	var errs []error
	for day := range ahead + 1 {
		errs = append(errs, createDay(ctx, m.DB, dayOf(now).AddDate(0, 0, day)))
	}
	longest := 0
	for _, t := range m.Terms {
		longest = max(longest, t.RetentionDays)
	}
	rows, bodies := dayOf(now.Add(-Retention)), dayOf(now.AddDate(0, 0, -longest))
	errs = append(errs, m.dropBefore(ctx, "requests", rows), m.dropBefore(ctx, "request_payloads", bodies),
		m.deleteBodies(ctx, now))
	if _, err := m.DB.Exec(ctx, `delete from ops.request_counts where start < $1`, rows); err != nil {
		errs = append(errs, fmt.Errorf("delete old counts: %w", err))
	}
	if _, err := m.DB.Exec(ctx, `delete from ops.blanked_points
		where blanked_at < now() - make_interval(secs => $1)`, blankedFor.Seconds()); err != nil {
		errs = append(errs, fmt.Errorf("forget blanked data points: %w", err))
	}
	if _, err := m.DB.Exec(ctx, `delete from ops.blanked_projects
		where blanked_at < now() - make_interval(secs => $1)`, blankedFor.Seconds()); err != nil {
		errs = append(errs, fmt.Errorf("forget projects with blanked persons: %w", err))
	}
	return errors.Join(errs...)
}

// deleteBodies deletes the bodies of plans that keep them shorter than others.
func (m *Maintainer) deleteBodies(ctx context.Context, now time.Time) error {
	for plan, t := range m.Terms {
		names := []string{string(plan)}
		if plan == metering.SelfHosted {
			names = append(names, "")
		}
		until := now.AddDate(0, 0, -t.RetentionDays)
		if _, err := m.DB.Exec(ctx, `delete from ops.request_payloads
			where plan = any($1) and received_at >= $2 and received_at < $3`, names, m.deleted[plan], until); err != nil {
			return fmt.Errorf("delete old bodies: %w", err)
		}
		if m.deleted == nil {
			m.deleted = map[metering.Plan]time.Time{}
		}
		m.deleted[plan] = until.Add(-time.Hour)
	}
	return nil
}

// partitionsOf returns the names of the partitions of a table.
func partitionsOf(ctx context.Context, db *pgxpool.Pool, table string) ([]string, error) {
	return statement.All(ctx, db, pgx.RowTo[string], `select c.relname::text from pg_inherits i
		join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass('ops.' || $1)`, table)
}

// dropBefore drops the partitions of days before one.
func (m *Maintainer) dropBefore(ctx context.Context, table string, day time.Time) error {
	names, err := partitionsOf(ctx, m.DB, table)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if name >= partition(table, day) {
			break
		}
		if err := pgx.BeginTxFunc(ctx, m.DB, ddl, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, lockDays); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `drop table if exists `+pgx.Identifier{"ops", name}.Sanitize())
			return err
		}); err != nil {
			return fmt.Errorf("drop partition %s: %w", name, err)
		}
	}
	return nil
}

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
