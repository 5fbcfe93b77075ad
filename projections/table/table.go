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
// What is no row stays SQL: counters that are added to, statements about rows that the page has not loaded, aggregates.
package table

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Table is a table of a projection with rows R.
type Table[R any] struct {
	columns []column
	list    string // of the columns, as they are read
	comment string
	byKey   string
	insert  string
	save    string
}

// New makes a table that the schema of a projection creates. It panics if the fields of R are not the columns of the
// table: in type, in whether they may be null, and in number. Only a column with a default may be without a field; the
// statements of the table leave it alone.
func New[R any](projection, schema, name string, updates ...Update) *Table[R] {
	columns, key, err := match(reflect.TypeFor[R](), schema, name)
	for _, u := range updates {
		if err == nil && u.Column != "" && !slices.ContainsFunc(columns, func(c column) bool { return c.name == u.Column }) {
			err = fmt.Errorf("no column to update: %s", u.Column)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("table %s of %s: %v", name, projection, err))
	}
	t := &Table[R]{columns: columns, comment: " -- " + projection}
	read := make([]string, len(columns))
	for i, c := range columns {
		read[i] = c.read()
	}
	t.list = "select " + strings.Join(read, ", ") + " from "
	if len(key) == 1 {
		of := columns[slices.IndexFunc(columns, func(c column) bool { return c.name == key[0] })]
		t.byKey = t.Select(fmt.Sprintf("%s where %s = any($1::%s[])", name, of.name, of.pgType))
	}
	t.insert, t.save = writing(name, columns, key, updates)
	t.insert, t.save = t.insert+t.comment, t.save+t.comment
	return t
}

// Update changes what Save does to a row that is there. In its SQL, excluded is the row that is saved.
type Update struct {
	// Column gets Value instead of the saved one.
	Column, Value string
	// If, without a column, is the condition of all changes.
	If string
}

// writing returns the statements that insert rows, and that insert or update them.
func writing(name string, columns []column, key []string, updates []Update) (insert, save string) {
	names, arrays, sets := make([]string, len(columns)), make([]string, len(columns)), []string{}
	for i, c := range columns {
		names[i], arrays[i] = c.name, fmt.Sprintf("$%d::%s[]", i+1, c.pgType)
		if !c.once && !slices.Contains(key, c.name) {
			sets = append(sets, c.name+" = "+c.updated(updates))
		}
	}
	insert = fmt.Sprintf("insert into %s (%s) select * from unnest(%s) on conflict (%s) do ",
		name, strings.Join(names, ", "), strings.Join(arrays, ", "), strings.Join(key, ", "))
	save = insert + "update set " + strings.Join(sets, ", ")
	for _, u := range updates {
		if u.If != "" {
			save += " where " + u.If
		}
	}
	return insert + "nothing", save
}

// updated is the value of the column after an update.
func (c *column) updated(updates []Update) string {
	for _, u := range updates {
		if u.Column == c.name {
			return u.Value
		}
	}
	return "excluded." + c.name
}

// Select returns a statement that reads whole rows, for Read: from is what follows "from". It is made once, when the
// program starts.
func (t *Table[R]) Select(from string) string { return t.list + from + t.comment }

// Read returns what reads the rows of such a statement, and passes each on.
func (t *Table[R]) Read(add func(*R)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		into := make([]any, len(t.columns))
		for rows.Next() {
			row := new(R)
			fields := reflect.ValueOf(row).Elem()
			for i, c := range t.columns {
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

// Load queues the read of the rows with some keys, of a table whose key is one column. An empty set adds no query.
func Load[K comparable, V, R any](b *pgx.Batch, t *Table[R], of map[K]V, add func(*R)) {
	if len(of) == 0 {
		return
	}
	keys := make([]K, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	b.Queue(t.byKey, keys).Query(t.Read(add))
}

// Save queues the one statement that inserts rows, and updates those that are there. No row may be twice.
func (t *Table[R]) Save(b *pgx.Batch, rows []*R) { t.queue(b, t.save, rows) }

// Insert queues the one statement that inserts rows. Those that are there stay.
func (t *Table[R]) Insert(b *pgx.Batch, rows []*R) { t.queue(b, t.insert, rows) }

func (t *Table[R]) queue(b *pgx.Batch, sql string, rows []*R) {
	if len(rows) == 0 {
		return
	}
	fields, arrays := make([]reflect.Value, len(rows)), make([]any, len(t.columns))
	for i, row := range rows {
		fields[i] = reflect.ValueOf(row).Elem()
	}
	for i, c := range t.columns {
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
