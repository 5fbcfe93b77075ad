package web

import (
	"encoding/json"
	"reflect"
	"strings"
)

// CSV writes a list as CSV, at most MaxTotal rows. It has a column for each field that the JSON of a row has; what is
// no text or number is a cell of JSON. next returns the rows of the first page, then those of each one after it.
func CSV[T any](r *Request, name string, next func() (rows []T, more bool, err error)) error {
	columns := fieldsOf(reflect.TypeFor[T]())
	return r.Rows(name, columns, func(yield func([]string, error) bool) {
		for n, more := 0, true; more && n < MaxTotal; {
			rows, others, err := next()
			for _, row := range rows[:min(len(rows), MaxTotal-n)] {
				cells, wrong := cellsOf(row, columns)
				if n++; !yield(cells, wrong) {
					return
				}
			}
			if more = others; err != nil {
				yield(nil, err)
				return
			}
		}
	})
}

// Whole is the next of a list that has one page.
func Whole[T any](rows []T) func() ([]T, bool, error) {
	return func() ([]T, bool, error) { return rows, false, nil }
}

// fieldsOf are the names of the fields that the JSON of a struct has.
func fieldsOf(of reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous && f.IsExported() && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func cellsOf(row any, columns []string) ([]string, error) {
	text, err := json.Marshal(row)
	if err != nil {
		return nil, err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	cells := make([]string, len(columns))
	for i, column := range columns {
		if json.Unmarshal(values[column], &cells[i]) != nil {
			cells[i] = string(values[column])
		}
	}
	return cells, nil
}
