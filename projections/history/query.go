package history

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/cursor"
)

// Viewer is what the person who reads may see.
type Viewer struct {
	// Organization is the one whose history it is. Project is zero for that of the organization, which only those who
	// may Manage read.
	Organization uuid.UUID
	Project      uuid.UUID
	// May is the most that the person may do in it.
	May Needs
	// HidesTexts hides texts of customers: traits, names of identities and ids of texts.
	HidesTexts bool
}

// Query is which events are asked for. A zero field filters nothing.
type Query struct {
	// Thing is "kind:id" of a thing (OfKey and so on).
	Thing string
	// By is the principal of the events, as "person:<id>", or how that of an operator begins.
	By string
	// Kind is one of Kinds.
	Kind     string
	From, To time.Time // To is exclusive
	// After is the cursor of the page before.
	After string
	// Most is the most events of the page, 0 for PageSize.
	Most int
}

// PageSize is the most events of a page, if the query names no other number.
const PageSize = 50

// Kinds are the kinds that somebody may see, as names without a version.
func (v Viewer) Kinds() (kinds []string) {
	for _, name := range v.types("") {
		kinds = append(kinds, KindOf(name))
	}
	return kinds
}

// types are the stored names of the kinds that somebody may see: all, or one.
func (v Viewer) types(kind string) []string {
	types := []string{}
	for _, name := range withText {
		if entries[name].Needs <= v.May && (kind == "" || KindOf(name) == kind) {
			types = append(types, name)
		}
	}
	return types
}

const columns = `e.id, e.organization_id, coalesce(e.project_id, '00000000-0000-0000-0000-000000000000'), e.at, e.type,
	e.principal, coalesce(e.stream, ''), e.revision, coalesce(e.former_stream, ''), e.former_revision, e.of_thing`

func scanEntry(row pgx.CollectableRow) (r entryRow, err error) {
	err = row.Scan(&r.ID, &r.Organization, &r.Project, &r.At, &r.Type, &r.Principal, &r.Stream, &r.Revision,
		&r.FormerStream, &r.FormerRevision, &r.IsOfThing)
	r.At = r.At.UTC()
	return r, err
}

// statement is a query with its arguments.
type statement struct {
	where []string
	args  []any
}

func (s *statement) add(condition string, arg any) {
	s.args = append(s.args, arg)
	s.where = append(s.where, fmt.Sprintf(condition, len(s.args)))
}

// scope limits a statement to what somebody may see.
func (v Viewer) scope(s *statement) {
	s.add("e.organization_id = $%d", v.Organization)
	if v.Project != uuid.Nil {
		s.add("e.project_id = $%d", v.Project)
	}
}

// rows reads the rows of a page, the newest first, and the cursor of the next one.
func (q Reader) rows(ctx context.Context, v Viewer, of Query) (rows []entryRow, next string, err error) {
	s, from, place := &statement{}, "history.entries e", "e"
	v.scope(s)
	if of.Thing == "" {
		s.where = append(s.where, "not e.of_thing")
	} else {
		from, place = "history.about a join history.entries e using (id)", "a"
		s.add("a.thing = $%d", of.Thing)
	}
	if strings.HasPrefix(of.By, OfOperator) {
		s.add("starts_with(e.principal, $%d)", of.By)
	} else if of.By != "" {
		s.add("e.principal = $%d", of.By)
	}
	if types := v.types(of.Kind); len(types) == 1 {
		s.add("e.type = $%d", types[0]) // an index has them in order
	} else if v.May < Manage || of.Kind != "" {
		s.add("e.type = any($%d)", types)
	}
	if !of.From.IsZero() {
		s.add(place+".at >= $%d", of.From)
	}
	if !of.To.IsZero() {
		s.add(place+".at < $%d", of.To)
	}
	if of.After != "" {
		at, err := cursor.Parse(of.After)
		if err != nil {
			return nil, "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no such page; begin at the first one")
		}
		s.args = append(s.args, at.At, at.ID)
		n := len(s.args)
		s.where = append(s.where, fmt.Sprintf("(%s.at, %s.id) < ($%d, $%d)", place, place, n-1, n))
	}
	most := of.Most
	if most <= 0 {
		most = PageSize
	}
	sql := fmt.Sprintf(`select %s from %s where %s order by %s.at desc, %s.id desc limit %d`,
		columns, from, strings.Join(s.where, " and "), place, place, most+1)
	found, err := q.DB.Query(ctx, sql, s.args...)
	if err == nil {
		rows, err = pgx.CollectRows(found, scanEntry)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read history: %w", err)
	}
	if len(rows) > most {
		rows = rows[:most]
		next = cursor.Cursor{At: rows[most-1].At, ID: rows[most-1].ID}.String()
	}
	return rows, next, nil
}

// row reads one row that somebody may see. ok is false if there is none.
func (q Reader) row(ctx context.Context, v Viewer, id uuid.UUID) (row entryRow, ok bool, err error) {
	s := &statement{}
	v.scope(s)
	s.add("e.type = any($%d)", v.types(""))
	s.add("e.id = $%d", id)
	sql := "select " + columns + " from history.entries e where " + strings.Join(s.where, " and ")
	rows, err := q.DB.Query(ctx, sql, s.args...)
	if err == nil {
		var found []entryRow
		if found, err = pgx.CollectRows(rows, scanEntry); len(found) == 1 {
			return found[0], true, nil
		}
	}
	if err != nil {
		return row, false, fmt.Errorf("read an event of history: %w", err)
	}
	return row, false, nil
}
