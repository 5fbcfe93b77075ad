package requestlog

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/fault"
)

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
	rows, err := l.DB.Query(ctx, `
		select date_trunc('day', c.start at time zone 'UTC') at time zone 'UTC', c.project_id, k.key_name, k.key_prefix,
			sum(c.calls)::bigint, sum(c.credit_tenths)::bigint
		from ops.request_counts c join ops.request_kinds k using (kind)
		where c.project_id = any($1) and c.step = $2 and c.start >= $3 and c.start < $4
		group by 1, 2, 3, 4 order by 1, 6 desc, 5 desc, 2, 3, 4 limit $5`,
		projects, int(steps[len(steps)-1]), first, last.AddDate(0, 0, 1), maxCosts+1)
	if err == nil {
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Cost, err error) {
			err = row.Scan(&c.Day, &c.Project, &c.Key.Name, &c.Key.Prefix, &c.CallCount, &c.CreditTenths)
			c.Day = c.Day.UTC()
			return c, err
		})
	}
	if err != nil {
		return nil, false, fmt.Errorf("sum the costs of calls: %w", err)
	}
	return list[:min(len(list), maxCosts)], len(list) > maxCosts, nil
}
