package datapoints_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// used returns what the pages of an index hold in their items, the separators of inner pages and the high keys
// included. It leaves out the unused part of a page.
func used(t *testing.T, db *pgxpool.Pool, index string) (items []byte) {
	t.Helper()
	const pageSize, headerSize, deleted = 8192, 24, 1 << 2
	var file []byte
	if err := db.QueryRow(t.Context(), "select pg_read_binary_file(pg_relation_filepath($1::regclass))", index).
		Scan(&file); err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(file, pageSize) {
		lower, special := binary.LittleEndian.Uint16(page[12:]), binary.LittleEndian.Uint16(page[16:])
		if lower < headerSize || binary.LittleEndian.Uint16(page[special+12:])&deleted != 0 {
			continue
		}
		for pointer := range slices.Chunk(page[headerSize:lower], 4) {
			item := binary.LittleEndian.Uint32(pointer)
			from, length, isUsed := item&0x7fff, item>>17, item>>15&3 != 0
			if isUsed && from+length <= pageSize {
				items = append(items, page[from:from+length]...)
			}
		}
	}
	return items
}

// A B-tree keeps keys of deleted rows as the bounds of its pages, however often it is vacuumed: so no key is a text of
// customers. What the leaves include besides leaves with the row.
func TestIndexes_KeepNoTextOfDeletedRows(t *testing.T) {
	t.Parallel()
	w := newListFixture(t)
	fillPoints(t, w, 5_000)
	exec := func(sql string) {
		t.Helper()
		if _, err := w.Queries.DB.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	// Each page has rows that stay.
	exec(`update datapoints.data_points set source_id = id || name, label_key = id || name, author = id || name
		from (values (true, ' deleted'), (false, ' kept')) names (goes, name) where goes = (position % 20 > 0)`)
	rows, err := w.Queries.DB.Query(t.Context(), `select indexrelid::regclass::text from pg_index
		where indrelid = 'datapoints.data_points'::regclass`)
	if err != nil {
		t.Fatal(err)
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(indexes) < 4 {
		t.Fatalf("indexes %v, %v", indexes, err)
	}
	exec("checkpoint")
	held := 0
	for _, index := range indexes {
		held += bytes.Count(used(t, w.Queries.DB, index), []byte(" deleted"))
	}
	if held < 1_000 {
		t.Fatalf("the test finds %d texts before the rows are deleted", held)
	}
	exec("delete from datapoints.data_points where position % 20 > 0")
	exec("vacuum (index_cleanup on, truncate off) datapoints.data_points")
	exec("checkpoint")
	for _, index := range indexes {
		if n := bytes.Count(used(t, w.Queries.DB, index), []byte(" deleted")); n > 0 {
			t.Errorf("index %s holds %d texts of deleted rows", index, n)
		}
	}
}
