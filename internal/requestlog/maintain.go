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

// dropBefore drops the partitions of days before one.
func (m *Maintainer) dropBefore(ctx context.Context, table string, day time.Time) error {
	rows, err := m.DB.Query(ctx, `select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = to_regclass('ops.' || $1)`, table)
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
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
