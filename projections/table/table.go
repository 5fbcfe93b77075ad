// Package table loads and saves the rows of a projection. The struct of a row is the only place that names its columns:
// the statements are made of it, and it is compared with schema.sql when the program starts.
//
// A column is an exported field with a tag: its name, then "once" if an update of a row keeps the first value, then
// "null" if the zero value of the field is null in the table. Fields without a tag are not stored, and those of an
// embedded struct are columns too.
//
//	type deletionRow struct {
//		ID        uuid.UUID `db:"id"`
//		Project   uuid.UUID `db:"project_id,once"`
//		Send      uuid.UUID `db:"ingestion_id,once,null"`
//		FannedOut bool      `db:"fanned_out"`
//		dirty     bool
//	}
//
//	var deletions = table.New[deletionRow](Name, schema, "deletions")
//
// Counters that are added to, changes of rows that the page does not know, and aggregates stay SQL.
package table

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Part is some columns of a table of a projection, the key among them, as a struct R.
type Part[R any] struct {
	columns []column
	list    string // of the columns, as they are read
	comment string
	byKey   string
	update  string
}

// Table is a table of a projection with rows R.
type Table[R any] struct {
	Part[R]
	insert string
	save   string
}

// Change is how Save changes a row that is there. In its SQL, excluded is the row that is saved.
type Change struct {
	// Column gets Value instead of the saved one.
	Column, Value string
	// If, without a column, is the condition of all changes.
	If string
}

// New makes a table that the schema of a projection creates. It panics if the fields of R are not the columns of the
// table: in type, in whether they may be null, and in number. Only a column with a default may be without a field; the
// statements of the table leave it alone.
func New[R any](projection, schema, name string, changes ...Change) *Table[R] {
	part, key, others := newPart[R](projection, schema, name)
	for _, c := range others {
		if !c.optional {
			panic(fmt.Sprintf("table %s of %s: no field for column %s", name, projection, c.name))
		}
	}
	for _, change := range changes {
		if change.Column != "" && !slices.ContainsFunc(part.columns, func(c column) bool { return c.name == change.Column }) {
			panic(fmt.Sprintf("table %s of %s: no column %s to change", name, projection, change.Column))
		}
	}
	t := &Table[R]{Part: *part}
	names, sets, condition := make([]string, len(t.columns)), []string{}, ""
	for i, c := range t.columns {
		if names[i] = c.name; !c.once && !slices.Contains(key, c.name) {
			sets = append(sets, c.name+" = "+c.changed(changes))
		}
	}
	for _, change := range changes {
		if change.If != "" {
			condition = " where " + change.If
		}
	}
	insert := fmt.Sprintf("insert into %s (%s) select * from %s on conflict (%s) do ",
		name, strings.Join(names, ", "), t.unnest(), strings.Join(key, ", "))
	t.insert = insert + "nothing" + t.comment
	if t.save = t.insert; len(sets) > 0 {
		t.save = insert + "update set " + strings.Join(sets, ", ") + condition + t.comment
	}
	return t
}

// changed is the value of the column after a change.
func (c *column) changed(changes []Change) string {
	for _, change := range changes {
		if change.Column == c.name {
			return change.Value
		}
	}
	return "excluded." + c.name
}

// NewPart makes a part of a table that the schema of a projection creates. It panics as New does, but a column may be
// without a field.
func NewPart[R any](projection, schema, name string) *Part[R] {
	part, _, _ := newPart[R](projection, schema, name)
	return part
}

func newPart[R any](projection, schema, name string) (p *Part[R], key []string, others []created) {
	columns, key, others, err := match(reflect.TypeFor[R](), schema, name)
	if err != nil {
		panic(fmt.Sprintf("table %s of %s: %v", name, projection, err))
	}
	p = &Part[R]{columns: columns, comment: " -- " + projection}
	read, names, sets, same := make([]string, len(columns)), make([]string, len(columns)), []string{}, []string{}
	byKey := ""
	for i, c := range columns {
		read[i], names[i] = c.read(), c.name
		switch {
		case slices.Contains(key, c.name):
			same = append(same, fmt.Sprintf("%s.%s = n.%s", name, c.name, c.name))
			byKey = fmt.Sprintf("%s where %s = any($1::%s[])", name, c.name, c.pgType)
		case !c.once:
			sets = append(sets, fmt.Sprintf("%s = n.%s", c.name, c.name))
		}
	}
	p.list = "select " + strings.Join(read, ", ") + " from "
	if len(key) == 1 {
		p.byKey = p.Select(byKey)
	}
	p.update = fmt.Sprintf("update %s set %s from %s as n (%s) where %s",
		name, strings.Join(sets, ", "), p.unnest(), strings.Join(names, ", "), strings.Join(same, " and ")) + p.comment
	return p, key, others
}

// unnest makes rows of the arrays of the columns.
func (p *Part[R]) unnest() string {
	arrays := make([]string, len(p.columns))
	for i, c := range p.columns {
		arrays[i] = fmt.Sprintf("$%d::%s[]", i+1, c.pgType)
	}
	return "unnest(" + strings.Join(arrays, ", ") + ")"
}

// Select returns a statement that reads rows, for Read: from is what follows "from". It is made once, when the program
// starts.
func (p *Part[R]) Select(from string) string { return p.list + from + p.comment }

// Read returns what reads the rows of such a statement, and passes each on.
func (p *Part[R]) Read(add func(*R)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		into := make([]any, len(p.columns))
		for rows.Next() {
			row := new(R)
			fields := reflect.ValueOf(row).Elem()
			for i, c := range p.columns {
				into[i] = fields.FieldByIndex(c.index).Addr().Interface()
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			add(row)
		}
		return rows.Err()
	}
}

// Loader is a table or a part of one.
type Loader[R any] interface {
	load(b *pgx.Batch, keys any, add func(*R))
}

// Load queues the read of the rows with some keys, of a table whose key is one column. An empty set adds no query. Load
// panics if the key is several columns.
func Load[K comparable, V, R any](b *pgx.Batch, t Loader[R], of map[K]V, add func(*R)) {
	if len(of) > 0 {
		t.load(b, slices.Collect(maps.Keys(of)), add)
	}
}

func (p *Part[R]) load(b *pgx.Batch, keys any, add func(*R)) {
	if p.byKey == "" {
		panic("the key of the table is several columns: " + p.list)
	}
	b.Queue(p.byKey, keys).Query(p.Read(add))
}

// Save queues the one statement that inserts rows, and updates those that are there. No row may be twice. Rows of once
// alone stay as they are.
func (t *Table[R]) Save(b *pgx.Batch, rows []*R) { t.queue(b, t.save, rows) }

// Insert queues the one statement that inserts rows. Those that are there stay.
func (t *Table[R]) Insert(b *pgx.Batch, rows []*R) { t.queue(b, t.insert, rows) }

// Update queues the one statement that changes rows that are there. No row may be twice.
func (p *Part[R]) Update(b *pgx.Batch, rows []*R) { p.queue(b, p.update, rows) }

func (p *Part[R]) queue(b *pgx.Batch, sql string, rows []*R) {
	if len(rows) == 0 {
		return
	}
	fields, arrays := make([]reflect.Value, len(rows)), make([]any, len(p.columns))
	for i, row := range rows {
		fields[i] = reflect.ValueOf(row).Elem()
	}
	for i, c := range p.columns {
		arrays[i] = c.array(fields, c.index)
	}
	b.Queue(sql, arrays...)
}

// Filter returns the rows of a map that match, such as the changed ones.
func Filter[K comparable, R any](rows map[K]*R, is func(*R) bool) (matching []*R) {
	for _, row := range rows {
		if is(row) {
			matching = append(matching, row)
		}
	}
	return matching
}
