package access

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/table"
)

// visitMonthRow is a row of table visit_months.
type visitMonthRow struct {
	Stream       string     `db:"stream"`
	Organization uuid.UUID  `db:"organization_id,once"`
	Person       *uuid.UUID `db:"person_id,once"`
	EndsAt       time.Time  `db:"ends_at,once"`
}

var visitMonths = table.New[visitMonthRow](Name, schema, "visit_months")

// visitRows is what a page adds to and removes from the months of visits. A row is never changed.
type visitRows struct {
	months map[string]*visitMonthRow
	gone   []string
}

// applyVisit folds an event of a visit. With the end of its stream, the row goes.
func (v *visitRows) applyVisit(f eventstore.DecodedEvent) error {
	if e, is := f.Event.(*eventstore.Tombstoned); is && stream.Category(e.Stream) == stream.Visits {
		v.gone = append(v.gone, e.Stream)
	}
	if stream.Category(f.Stream) != stream.Visits {
		return nil
	}
	person, month := stream.Visitor(f.Stream)
	begins, err := time.Parse("2006-01", month)
	if err != nil {
		return fmt.Errorf("month of a visit: %w", err)
	}
	row := &visitMonthRow{Stream: f.Stream, Organization: stream.Owner(f.Stream), EndsAt: begins.AddDate(0, 1, 0)}
	if person != uuid.Nil {
		row.Person = &person
	}
	if v.months == nil {
		v.months = map[string]*visitMonthRow{}
	}
	v.months[f.Stream] = row
	return nil
}

func (v *visitRows) save(b *pgx.Batch) {
	visitMonths.Insert(b, slices.Collect(maps.Values(v.months)))
	if len(v.gone) > 0 {
		b.Queue(`delete from visit_months where stream = any($1)`, v.gone)
	}
}

// EndedVisits lists, after a stream and in the order of their names, the streams of visits that may end at a time:
// those of people who are removed, and those of months that are older than the organization keeps.
func (q Queries) EndedVisits(ctx context.Context, now time.Time, after string, limit int) ([]work.Visits, error) {
	rows, err := q.DB.Query(ctx, `select v.stream, v.organization_id, v.person_id
		from access.visit_months v join access.organizations o on o.id = v.organization_id
		where v.stream > $2 and (v.ends_at + o.visit_days * interval '1 day' <= $1 or v.person_id is not null
			and not exists (select from access.people p where p.id = v.person_id and not p.removed))
		order by v.stream limit $3`, now, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list visits to end: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v work.Visits, err error) {
		var person *uuid.UUID
		if err = row.Scan(&v.Stream, &v.Organization, &person); person != nil {
			v.Person = *person
		}
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("list visits to end: %w", err)
	}
	return list, nil
}
