package table

// Created is a column as the schema creates it, for tests.
type Created struct {
	Name, PgType       string
	Nullable, Optional bool
}

// ColumnsOf is columnsOf.
func ColumnsOf(schema, table string) (columns []Created, key []string, err error) {
	all, key, err := columnsOf(schema, table)
	for _, c := range all {
		columns = append(columns, Created{c.name, c.pgType, c.nullable, c.optional})
	}
	return columns, key, err
}

// Statements are the statements that a table made.
func (t *Table[R]) Statements() []string { return []string{t.byKey, t.update, t.insert, t.save} }
