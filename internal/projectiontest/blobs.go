package projectiontest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/eventstore"
)

// Blobs holds blobs by stream; others are missing.
type Blobs map[string][]byte

// ReadBlob implements eventstore.BlobReader.
func (b Blobs) ReadBlob(_ context.Context, ref blob.Ref) ([]byte, error) {
	if data, ok := b[ref.Stream]; ok {
		return data, nil
	}
	return nil, &eventstore.BlobError{Stream: ref.Stream, Missing: true}
}

// fataler ends a test, or a check of a property.
type fataler interface{ Fatal(args ...any) }

// RowsAfter is Rows for a check of a property within a test. An error ends the check.
func RowsAfter(
	check fataler, t testing.TB, db *pgxpool.Pool, p Projector, pages [][]eventstore.DecodedEvent, without ...string,
) map[string][]string {
	t.Helper()
	rows, err := Rows(t.Context(), db, p, pages, without...)
	if err != nil {
		check.Fatal(err)
	}
	return rows
}
