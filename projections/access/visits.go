package access

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/table"
)

type visitKey struct {
	Stream   string `db:"stream"`
	Revision int64  `db:"revision"`
}

// visitRow is a row of table visits.
type visitRow struct {
	visitKey
	Position     int64      `db:"position,once"`
	Organization uuid.UUID  `db:"organization_id,once"`
	Person       *uuid.UUID `db:"person_id,once"`
	Project      *uuid.UUID `db:"project_id,once"`
	Request      *uuid.UUID `db:"request_id,once"`
	At           time.Time  `db:"visited_at,once"`
	Event        string     `db:"event,once"`
	Fields       string     `db:"fields,once"`
}

// visitMonthRow is a row of table visit_months.
type visitMonthRow struct {
	Stream       string     `db:"stream"`
	Organization uuid.UUID  `db:"organization_id,once"`
	Person       *uuid.UUID `db:"person_id,once"`
	EndsAt       time.Time  `db:"ends_at,once"`
}

var (
	visits      = table.New[visitRow](Name, schema, "visits")
	visitMonths = table.New[visitMonthRow](Name, schema, "visit_months")
)

// visitRows is what a page adds to and removes from the visits. A row is never changed.
type visitRows struct {
	visits []*visitRow
	months map[string]*visitMonthRow
	gone   []string
}

// orNull is an id that is null if it is zero.
func orNull(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// applyVisit folds an event of a visit. With the end of its stream, the rows go.
func (v *visitRows) applyVisit(f eventstore.DecodedEvent) error {
	row := &visitRow{
		visitKey: visitKey{f.Stream, int64(f.Revision)}, Position: int64(f.Position), //nolint:gosec // below it
		Request: orNull(f.Details.RequestID),
	}
	var of visit.Visit
	switch e := f.Event.(type) {
	case *eventstore.Tombstoned:
		if stream.Category(e.Stream) == stream.Visits {
			v.gone = append(v.gone, e.Stream)
		}
		return nil
	case *visit.OperatorRead:
		of, row.Project = visit.Visit{OrganizationID: e.OrganizationID, VisitedAt: e.VisitedAt}, orNull(e.ProjectID)
	case *visit.Exported:
		of, row.Project = e.Visit, orNull(e.ProjectID)
	case visit.OfPerson:
		of = *e.Of()
	default:
		return nil
	}
	row.Organization, row.Person, row.At = of.OrganizationID, orNull(of.PersonID), pgarray.Instant(of.VisitedAt)
	row.Event = f.Event.EventType()
	fields, err := json.Marshal(f.Event)
	if err != nil {
		return fmt.Errorf("encode a visit: %w", err)
	}
	row.Fields = string(fields)
	v.visits = append(v.visits, row)
	_, month := stream.Visitor(f.Stream)
	begins, err := time.Parse("2006-01", month)
	if err != nil {
		return fmt.Errorf("month of a visit: %w", err)
	}
	if v.months == nil {
		v.months = map[string]*visitMonthRow{}
	}
	v.months[f.Stream] = &visitMonthRow{f.Stream, row.Organization, row.Person, begins.AddDate(0, 1, 0)}
	return nil
}

func (v *visitRows) save(b *pgx.Batch) {
	visits.Insert(b, v.visits)
	visitMonths.Save(b, table.Filter(v.months, func(*visitMonthRow) bool { return true }))
	if len(v.gone) > 0 {
		b.Queue(`delete from visits where stream = any($1)`, v.gone)
		b.Queue(`delete from visit_months where stream = any($1)`, v.gone)
	}
}

// Visit is something that a person did without a change, or that an operator read.
type Visit struct {
	Position     eventstore.Position
	Organization uuid.UUID
	// Person is zero for an operator, Project for what concerns no project, Request for what no request caused.
	Person, Project, Request uuid.UUID
	At                       time.Time
	// Event is the name of the event, such as "visit.signed-in.v1", and Fields its payload as JSON.
	Event  string
	Stream string
	Fields json.RawMessage
}

// VisitFilter selects visits of an organization. A zero field selects all.
type VisitFilter struct {
	Person, Project uuid.UUID
	// Event is the name of an event without its version.
	Event string
	// From is the first time, To the one after the last.
	From, To time.Time
}

// MaxVisits is the most visits of one list.
const MaxVisits = 1000

// Visits lists visits of an organization, the newest first, before a position of the log; 0 is its end.
func (q Queries) Visits(
	ctx context.Context, organization uuid.UUID, f VisitFilter, before eventstore.Position, limit int,
) ([]Visit, error) {
	where, args := []string{"organization_id = $1"}, []any{organization}
	add := func(condition string, arg any) {
		args = append(args, arg)
		where = append(where, strings.ReplaceAll(condition, "?", "$"+strconv.Itoa(len(args))))
	}
	if before > 0 {
		add("position < ?", int64(before)) //nolint:gosec // positions are below it
	}
	if f.Person != uuid.Nil {
		add("person_id = ?", f.Person)
	}
	if f.Project != uuid.Nil {
		add("project_id = ?", f.Project)
	}
	if f.Event != "" {
		add("event like ? || '.v%'", strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(f.Event))
	}
	if !f.From.IsZero() {
		add("visited_at >= ?", f.From)
	}
	if !f.To.IsZero() {
		add("visited_at < ?", f.To)
	}
	args = append(args, min(limit, MaxVisits))
	rows, err := q.DB.Query(ctx, `select position, organization_id, coalesce(person_id, '`+uuid.Nil.String()+`'),
			coalesce(project_id, '`+uuid.Nil.String()+`'), coalesce(request_id, '`+uuid.Nil.String()+`'), visited_at,
			event, stream, fields
		from access.visits where `+strings.Join(where, " and ")+`
		order by position desc limit $`+strconv.Itoa(len(args)), args...)
	if err != nil {
		return nil, fmt.Errorf("list visits: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v Visit, err error) {
		var position int64
		var fields string
		err = row.Scan(&position, &v.Organization, &v.Person, &v.Project, &v.Request, &v.At, &v.Event, &v.Stream, &fields)
		v.Position, v.At, v.Fields = eventstore.Position(position), v.At.UTC(), json.RawMessage(fields)
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("list visits: %w", err)
	}
	return list, nil
}

// LastSignIns returns when people last signed in, by what an organization keeps of it.
func (q Queries) LastSignIns(ctx context.Context, organization uuid.UUID) (map[uuid.UUID]time.Time, error) {
	rows, err := q.DB.Query(ctx, `select person_id, max(visited_at) from access.visits
		where organization_id = $1 and event = $2 and person_id is not null group by person_id`,
		organization, visit.SignedIn{}.EventType())
	if err != nil {
		return nil, fmt.Errorf("find last sign-ins: %w", err)
	}
	last := map[uuid.UUID]time.Time{}
	var id uuid.UUID
	var at time.Time
	if _, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		last[id] = at.UTC()
		return nil
	}); err != nil {
		return nil, fmt.Errorf("find last sign-ins: %w", err)
	}
	return last, nil
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
