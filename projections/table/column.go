package table

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

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
