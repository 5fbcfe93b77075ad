package reads

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/access"
)

// Queries reads the tables of this projection, with the names of what they name.
type Queries struct{ DB *pgxpool.Pool }

// Filter selects records of a project. An empty field selects all.
type Filter struct {
	// By is a principal: as an event names it, an id, the address of a person or the name of a key.
	By string
	// Identity is the name of the identity that was asked as, DataPoint the source id of a text that was shown.
	Identity, DataPoint string
	// From and To bound the time, the second without itself.
	From, To time.Time
}

// Read is a record.
type Read struct {
	ID   uuid.UUID `json:"requestId"`
	Part int       `json:"part"`
	At   time.Time `json:"at"`
	Way  string    `json:"way"`
	// Principal is as an event names it, and Name the address of the person or the name of the key, "" if that is removed.
	Principal string `json:"principal"`
	Name      string `json:"name"`
	// IdentityID is the identity that was asked as, Identity its name, "" if it is removed.
	IdentityID uuid.UUID `json:"identityId,omitzero"`
	Identity   string    `json:"identity"`
	// Call is the call whose bodies were shown.
	Call  uuid.UUID `json:"call,omitzero"`
	Texts int       `json:"texts"`
	Bytes int       `json:"bytes"`
}

// HasIdentity reports whether the request asked as an identity.
func (r Read) HasIdentity() bool { return r.IdentityID != uuid.Nil }

// HasCall reports whether the bodies of a call were shown.
func (r Read) HasCall() bool { return r.Call != uuid.Nil }

// Cursor is the place of a record in the list.
func (r Read) Cursor() string {
	return r.At.UTC().Format(time.RFC3339Nano) + "_" + r.ID.String() + "_" + strconv.Itoa(r.Part)
}

// ErrCursor is a cursor that no list has.
var ErrCursor = errors.New("the cursor is of no list")

// place is a cursor that was read.
type place struct {
	at   time.Time
	id   uuid.UUID
	part int
}

func parseCursor(text string) (p place, err error) {
	parts := strings.Split(text, "_")
	if len(parts) != 3 {
		return p, ErrCursor
	}
	var wrong, broken, bad error
	p.at, wrong = time.Parse(time.RFC3339Nano, parts[0])
	p.id, broken = uuid.Parse(parts[1])
	p.part, bad = strconv.Atoi(parts[2])
	if wrong != nil || broken != nil || bad != nil || p.part < 0 || p.part > 1<<30 {
		return p, ErrCursor
	}
	return p, nil
}

const (
	columns = `select r.id, r.part, r.at, r.way, r.principal, r.identity, coalesce(i.identity, ''), r.call, r.texts, r.bytes
		from `
	names = ` join reads.days d on d.project_id = r.project_id and d.day = r.day
		left join directory.identities i on i.id = r.identity
		where r.project_id = $1`
	// principals are the names of a principal in records: $1 the project, $2 what was typed.
	principals = `select 'person:' || id from access.people where email = lower($2)
		union all select 'key:' || id from access.keys where project_id = $1 and name = $2
		union all select unnest(array[$2, 'person:' || $2, 'key:' || $2, 'agent:' || $2, 'management-key:' || $2])`
)

// List lists records, the newest first, after a cursor, "" for the first ones. The error is ErrCursor for one that no
// list has. next is the cursor of those after them, "" for none.
func (q Queries) List(
	ctx context.Context, project auth.Project, f Filter, after string, most int,
) (list []Read, next string, err error) {
	sql, args, err := statement(project, f, after, most)
	if err != nil {
		return nil, "", err
	}
	rows, err := q.DB.Query(ctx, sql, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list reads: %w", err)
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Read, err error) {
		var identity, call *uuid.UUID
		err = row.Scan(&r.ID, &r.Part, &r.At, &r.Way, &r.Principal, &identity, &r.Identity, &call, &r.Texts, &r.Bytes)
		r.set(identity, call)
		return r, err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list reads: %w", err)
	}
	if len(list) > most {
		list = list[:most]
		next = list[most-1].Cursor()
	}
	return list, next, q.name(ctx, list)
}

// name sets the names of principals.
func (q Queries) name(ctx context.Context, list []Read) error {
	ids := make([]uuid.UUID, len(list))
	for i, r := range list {
		_, id, _ := strings.Cut(r.Principal, ":")
		ids[i], _ = uuid.Parse(id) // a principal without an id has no other name
	}
	found, err := access.Queries{DB: q.DB}.Names(ctx, ids)
	for i, id := range ids {
		list[i].Name = found[id]
	}
	return err
}

// statement is the statement of a list.
func statement(project auth.Project, f Filter, after string, most int) (sql string, args []any, err error) {
	args = []any{project.ID}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	from, order := "reads.records r", "r."
	var where strings.Builder
	if f.By != "" {
		where.WriteString(` and r.principal = any(array(` + strings.ReplaceAll(principals, "$2", arg(f.By)+"::text") + `))`)
	}
	if f.Identity != "" {
		where.WriteString(` and r.identity = ` + arg(stream.IdentityID(project.Namespace, f.Identity)))
	}
	if f.DataPoint != "" {
		from, order = "reads.shown s join reads.records r on r.id = s.id and r.part = s.part", "s."
		where.WriteString(` and s.data_point = ` + arg(stream.DataPointID(project.Namespace, f.DataPoint)))
	}
	if !f.From.IsZero() {
		where.WriteString(` and ` + order + `at >= ` + arg(f.From))
	}
	if !f.To.IsZero() {
		where.WriteString(` and ` + order + `at < ` + arg(f.To))
	}
	if after != "" {
		at, err := parseCursor(after)
		if err != nil {
			return "", nil, err
		}
		where.WriteString(fmt.Sprintf(` and (%[1]sat, %[1]sid, %[1]spart) < (%s, %s, %s)`, order, arg(at.at), arg(at.id),
			arg(at.part)))
	}
	sql = fmt.Sprintf(`%s%s%s%s order by %[5]sat desc, %[5]sid desc, %[5]spart desc limit %s`,
		columns, from, names, where.String(), order, arg(most+1))
	return sql, args, nil
}

// Place is where the log has a record.
type Place struct {
	Project, Organization uuid.UUID
	Slug                  string
	Stream                string
	Revision              eventstore.Revision
	Read                  Read
}

// Find returns where the log has a part of the record of a request. ok is false if there is none.
func (q Queries) Find(ctx context.Context, request uuid.UUID, part int) (at Place, ok bool, err error) {
	var day string
	var identity, call *uuid.UUID
	r := &at.Read
	err = q.DB.QueryRow(ctx, `select d.project_id, d.organization_id, p.slug, d.day, r.revision, r.id, r.part, r.at, r.way,
			r.principal, r.identity, coalesce(i.identity, ''), r.call, r.texts, r.bytes
		from reads.records r join reads.days d on d.project_id = r.project_id and d.day = r.day
		join access.projects p on p.id = r.project_id
		left join directory.identities i on i.id = r.identity where r.id = $1 and r.part = $2`, request, part).
		Scan(&at.Project, &at.Organization, &at.Slug, &day, &at.Revision, &r.ID, &r.Part, &r.At, &r.Way, &r.Principal,
			&identity, &r.Identity, &call, &r.Texts, &r.Bytes)
	if errors.Is(err, pgx.ErrNoRows) {
		return at, false, nil
	}
	if err != nil {
		return at, false, fmt.Errorf("find a read: %w", err)
	}
	r.set(identity, call)
	at.Stream = stream.ReadsName(at.Project, day)
	list := []Read{at.Read}
	err = q.name(ctx, list)
	at.Read = list[0]
	return at, true, err
}

// set sets what a row may not have.
func (r *Read) set(identity, call *uuid.UUID) {
	if r.At = r.At.UTC(); identity != nil {
		r.IdentityID = *identity
	}
	if call != nil {
		r.Call = *call
	}
}

// Text is a data point of which a text was shown.
type Text struct {
	DataPoint uuid.UUID `json:"dataPoint"`
	// SourceID is "" if the data point was deleted.
	SourceID string `json:"id"`
}

// Texts returns a record and the data points whose texts it was shown. ok is false if the project has no such record.
func (q Queries) Texts(
	ctx context.Context, project auth.Project, request uuid.UUID, part int,
) (texts []Text, ok bool, err error) {
	var points []byte
	err = q.DB.QueryRow(ctx, `select r.data_points from reads.records r
		join reads.days d on d.project_id = r.project_id and d.day = r.day
		where r.id = $1 and r.part = $2 and r.project_id = $3`, request, part, project.ID).Scan(&points)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("find a read: %w", err)
	}
	texts = []Text{}
	var ids []uuid.UUID
	for ; len(points) > 0; points = points[16:] {
		ids = append(ids, uuid.UUID(points[:16]))
	}
	rows, err := q.DB.Query(ctx, `select k.id, coalesce(d.source_id, '') from unnest($1::uuid[]) with ordinality k (id, n)
		left join datapoints.data_points d on d.id = k.id and d.project_id = $2 order by k.n`, ids, project.ID)
	if err == nil {
		texts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Text])
	}
	if err != nil {
		return nil, false, fmt.Errorf("find the texts of a read: %w", err)
	}
	return texts, true, nil
}

// Cost is what records cost.
type Cost struct {
	// Reads are the newest records, at most sampled, Bytes what they have together and Since when the first of them was.
	Reads int
	Bytes int64
	Since time.Time
}

// sampled is of how many records a Cost is.
const sampled = 1000

// Cost measures the newest records of a project.
func (q Queries) Cost(ctx context.Context, project uuid.UUID) (c Cost, err error) {
	var since *time.Time
	err = q.DB.QueryRow(ctx, `select count(*), coalesce(sum(bytes), 0), min(at) from
		(select bytes, at from reads.records where project_id = $1 order by at desc limit $2) newest`, project, sampled).
		Scan(&c.Reads, &c.Bytes, &since)
	if err != nil {
		return c, fmt.Errorf("measure reads: %w", err)
	}
	if since != nil {
		c.Since = since.UTC()
	}
	return c, nil
}

// EndedReads lists the days whose time is over at a moment, of which the log still has records.
func (q Queries) EndedReads(ctx context.Context, now time.Time, most int) ([]work.ReadsDay, error) {
	rows, err := q.DB.Query(ctx, `select d.project_id, d.organization_id, d.day
		from access.projects p join reads.days d on d.project_id = p.id
			and d.day < to_char($1::timestamptz at time zone 'UTC' - make_interval(days => p.read_days), 'YYYY-MM-DD')
		order by d.day, d.project_id limit $2`, now, most)
	if err != nil {
		return nil, fmt.Errorf("list days of reads: %w", err)
	}
	days, err := pgx.CollectRows(rows, pgx.RowToStructByPos[work.ReadsDay])
	if err != nil {
		return nil, fmt.Errorf("list days of reads: %w", err)
	}
	return days, nil
}
