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
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
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

// column is a column of a table with the field that holds it.
type column struct {
	created
	index []int // of the field
	once  bool
	zero  string // the zero value of the field in SQL if it is for null, else ""
	array toArray
}

// created is a column as a schema creates it.
type created struct {
	name, pgType string
	nullable     bool
	optional     bool // the table has a value for it
}

// read is how a statement selects the column.
func (c *column) read() string {
	if c.zero == "" {
		return c.name
	}
	return fmt.Sprintf("coalesce(%s, %s)", c.name, c.zero)
}

// match finds the columns of the fields of a row, which are those of the key at least, and returns the others too.
func match(row reflect.Type, schema, table string) (columns []column, key []string, others []created, err error) {
	others, key, err = columnsOf(schema, table)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, f := range reflect.VisibleFields(row) {
		tag, tagged := f.Tag.Lookup("db")
		if !tagged {
			continue
		}
		options := strings.Split(tag, ",")
		at := slices.IndexFunc(others, func(c created) bool { return c.name == options[0] })
		if at < 0 {
			return nil, nil, nil, fmt.Errorf("field %s: no column, or a second field of one", f.Name)
		}
		c := column{created: others[at], index: f.Index}
		if err := c.hold(f, options[1:]); err != nil {
			return nil, nil, nil, fmt.Errorf("column %s, field %s: %w", c.name, f.Name, err)
		}
		columns, others = append(columns, c), slices.Delete(others, at, at+1)
	}
	for _, c := range others {
		if slices.Contains(key, c.name) {
			return nil, nil, nil, fmt.Errorf("no field for column %s of the key", c.name)
		}
	}
	return columns, key, others, nil
}

// hold compares the column with its field, and chooses how pgx gets the values.
func (c *column) hold(f reflect.StructField, options []string) error {
	if !f.IsExported() {
		return fmt.Errorf("the field is not exported")
	}
	k, found := kindOf(f.Type)
	if !found || !slices.Contains(strings.Fields(k.pgTypes), c.pgType) {
		return fmt.Errorf("a %s cannot hold a %s", f.Type, c.pgType)
	}
	c.array = k.array
	nullable := f.Type.Kind() == reflect.Pointer || f.Type.Kind() == reflect.Slice && c.nullable
	for _, option := range options {
		switch {
		case option == "once":
			c.once = true
		case option == "null" && k.orNull != nil:
			c.array, c.zero, nullable = k.orNull, k.zero, true
		default:
			return fmt.Errorf("no option %q of a %s", option, f.Type)
		}
	}
	if nullable != c.nullable {
		return fmt.Errorf("null in the column: %t, in the field: %t", c.nullable, nullable)
	}
	return nil
}

var (
	columnLine = regexp.MustCompile(`^(\w+)\s+([\w\[\]]+)(.*)$`)
	keyLine    = regexp.MustCompile(`^primary key \(([\w, ]+)\)$`)
)

// columnsOf returns the columns and the primary key of a table. In a schema each of them has a line.
func columnsOf(schema, table string) (columns []created, key []string, err error) {
	_, body, found := strings.Cut("\n"+schema, "\ncreate table "+table+" (\n")
	if !found {
		return nil, nil, fmt.Errorf("the schema creates no such table")
	}
	body, _, _ = strings.Cut(body, "\n)")
	for line := range strings.Lines(body) {
		line, _, _ = strings.Cut(line, "--")
		line = strings.TrimSuffix(strings.TrimSpace(line), ",")
		if line == "" || strings.HasPrefix(line, "unique (") {
			continue
		}
		if m := keyLine.FindStringSubmatch(line); m != nil {
			key = strings.Split(m[1], ", ")
			continue
		}
		m := columnLine.FindStringSubmatch(line)
		if m == nil {
			return nil, nil, fmt.Errorf("the schema has the line %q", line)
		}
		if strings.Contains(m[3], " primary key") {
			key = []string{m[1]}
		}
		columns = append(columns, created{
			name: m[1], pgType: m[2], nullable: !strings.Contains(m[3], " not null") && !strings.Contains(m[3], " primary key"),
			optional: strings.Contains(m[3], " default ") || strings.Contains(m[3], " generated "),
		})
	}
	if key == nil {
		return nil, nil, fmt.Errorf("the table has no primary key")
	}
	return columns, key, nil
}

// kind is how the fields of a type become the array of a column.
type kind struct {
	pgTypes string // separated by spaces
	array   toArray
	// orNull makes null of zero values. It is nil if no column needs that.
	orNull toArray
	zero   string // the zero value in SQL
}

// toArray returns the array of the fields with an index.
type toArray func(rows []reflect.Value, index []int) any

// kindOf returns the kind of the fields of a type.
func kindOf(t reflect.Type) (k kind, found bool) {
	if k, found = byType[t]; !found {
		k, found = byKind[t.Kind()]
	}
	return k, found
}

var (
	byType = map[reflect.Type]kind{
		reflect.TypeFor[uuid.UUID](): {
			pgTypes: "uuid", array: arrayOf(value(fromUUID)), orNull: arrayOf(orNull(value(fromUUID))),
			zero: "'" + uuid.Nil.String() + "'",
		},
		reflect.TypeFor[time.Time]():  {pgTypes: "timestamptz", array: arrayOf(value(fromTime))},
		reflect.TypeFor[[]byte]():     {pgTypes: "bytea", array: flatArrayOf(reflect.Value.Bytes)},
		reflect.TypeFor[*uuid.UUID](): {pgTypes: "uuid", array: arrayOf(pointer(fromUUID))},
		reflect.TypeFor[*time.Time](): {pgTypes: "timestamptz", array: arrayOf(pointer(fromTime))},
		reflect.TypeFor[*string]():    {pgTypes: "text", array: arrayOf(pointer(fromString))},
		reflect.TypeFor[*int32]():     {pgTypes: "int", array: arrayOf(pointer(fromInt[int32]))},
		reflect.TypeFor[*int64]():     {pgTypes: "bigint", array: arrayOf(pointer(fromInt[int64]))},
	}
	byKind = map[reflect.Kind]kind{
		reflect.Bool:   {pgTypes: "boolean", array: arrayOf(boolOf)},
		reflect.Int:    {pgTypes: "int bigint", array: arrayOf(intOf)},
		reflect.Int16:  {pgTypes: "smallint", array: arrayOf(intOf)},
		reflect.Int64:  {pgTypes: "int bigint", array: arrayOf(intOf)},
		reflect.Uint64: {pgTypes: "bigint", array: arrayOf(uintOf)},
		reflect.String: {pgTypes: "text", array: arrayOf(stringOf), orNull: arrayOf(orNull(stringOf)), zero: "''"},
		// pgx encodes and decodes JSON.
		reflect.Slice:   {pgTypes: "jsonb", array: flatArrayOf(reflect.Value.Interface)},
		reflect.Pointer: {pgTypes: "jsonb", array: flatArrayOf(reflect.Value.Interface)},
	}
)

// values is an array whose elements pgx encodes in place. In pgtype.FlatArray each element would be copied to the heap,
// and a named type or a pointer be looked up by reflection.
type values[V any] []V

func (a values[V]) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(a)), LowerBound: 1}}
}
func (a values[V]) Index(i int) any { return &a[i] }
func (a values[V]) IndexType() any  { return new(V) }

func arrayOf[V any](get func(reflect.Value) V) toArray {
	return func(rows []reflect.Value, index []int) any {
		array := make(values[V], len(rows))
		for i, row := range rows {
			array[i] = get(row.FieldByIndex(index))
		}
		return array
	}
}

func flatArrayOf[V any](get func(reflect.Value) V) toArray {
	return func(rows []reflect.Value, index []int) any {
		array := make(pgtype.FlatArray[V], len(rows))
		for i, row := range rows {
			array[i] = get(row.FieldByIndex(index))
		}
		return array
	}
}

// value reads a field of type T, pointer one of type *T, which is null if it is nil.
func value[T, V any](from func(T) V) func(reflect.Value) V {
	return func(v reflect.Value) V { return from(*v.Addr().Interface().(*T)) }
}

func pointer[T, V any](from func(T) V) func(reflect.Value) (value V) {
	return func(v reflect.Value) (value V) {
		if p := v.Interface().(*T); p != nil {
			value = from(*p)
		}
		return value
	}
}

// orNull returns the zero value, which is null, for a zero field.
func orNull[V any](get func(reflect.Value) V) func(reflect.Value) V {
	return func(v reflect.Value) (value V) {
		if !v.IsZero() {
			value = get(v)
		}
		return value
	}
}

func fromUUID(id uuid.UUID) pgtype.UUID        { return pgtype.UUID{Bytes: id, Valid: true} }
func fromTime(t time.Time) pgtype.Timestamptz  { return pgtype.Timestamptz{Time: t, Valid: true} }
func fromString(s string) pgtype.Text          { return pgtype.Text{String: s, Valid: true} }
func fromInt[I int32 | int64](i I) pgtype.Int8 { return pgtype.Int8{Int64: int64(i), Valid: true} }
func stringOf(v reflect.Value) pgtype.Text     { return fromString(v.String()) }
func boolOf(v reflect.Value) pgtype.Bool       { return pgtype.Bool{Bool: v.Bool(), Valid: true} }
func intOf(v reflect.Value) pgtype.Int8        { return fromInt(v.Int()) }
func uintOf(v reflect.Value) pgtype.Int8       { return fromInt(int64(v.Uint())) }
