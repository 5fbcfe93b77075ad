package pgarray

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Queue adds a query to the batch whose only parameter is the set of uuids as an array; read is
// given its rows. It adds none for an empty set.
func Queue[V any](b *pgx.Batch, sql string, of map[uuid.UUID]V, read func(pgx.Rows) error) {
	if len(of) > 0 {
		b.Queue(sql, Keys(of)).Query(read)
	}
}

// Flush sends what was queued in one round trip; where nothing was, nothing is sent. The error is
// the first of a statement or of one that reads its rows.
func Flush(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}
