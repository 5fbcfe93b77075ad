package projections

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
)

// FollowUp is work that an event asks for and that is too much for its page: its page queues it, and the
// runner does it in slices after the page.
type FollowUp = projection.FollowUp

// SliceRows is the most rows that a slice loads, and the most that it changes in a table.
const SliceRows = 1000

// Following is a Projector with follow-ups. Its Schema ends with FollowUpTable.
type Following interface {
	Projector
	// Slice does the next part of a follow-up, at most SliceRows rows and a few megabytes. It returns the
	// cursor after it, and whether that was the last part. No page and no other slice runs meanwhile, and
	// the transaction's search_path is that of Apply. A slice comes again after its transaction was lost,
	// never after it was committed.
	//
	// Any number of pages is applied between two slices. Once the follow-ups are done, the rows are the
	// same wherever they were done: a page, and a query, treats the rows of a follow-up as if it was done.
	Slice(ctx context.Context, tx pgx.Tx, work FollowUp) (cursor string, done bool, err error)
}

// FollowUpTable is the DDL of the table of follow-ups. The index is the order in which they are done.
const FollowUpTable = `
create table follow_ups (
	kind       text not null,
	key        uuid not null,
	project_id uuid not null,
	position   bigint not null,                 -- of the event that asked for it
	data       text not null,
	cursor     text not null,                   -- of the last slice; empty before the first
	primary key (kind, key)
);
create index follow_ups_in_order on follow_ups (project_id, position, kind, key);
`

// QueueFollowUps queues follow-ups with the rows of a page. One that is queued already begins again. No
// follow-up may be twice in one call. The name of the projection keeps the text of its statement its own.
func QueueFollowUps(b *pgx.Batch, projection string, works []FollowUp) {
	if len(works) == 0 {
		return
	}
	b.Queue(`insert into follow_ups (kind, key, project_id, position, data, cursor)
		select *, '' from unnest($1::text[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[])
		on conflict (kind, key) do update set position = excluded.position, data = excluded.data, cursor = '' -- `+
		projection,
		pgarray.Column(works, func(w FollowUp) string { return w.Kind }),
		pgarray.IDs(works, func(w FollowUp) uuid.UUID { return w.Key }),
		pgarray.IDs(works, func(w FollowUp) uuid.UUID { return w.Project }),
		pgarray.Column(works, func(w FollowUp) int64 { return int64(w.Position) }),
		pgarray.Column(works, func(w FollowUp) string { return w.Data }))
}

// DoSlice is projection.DoSlice.
func DoSlice(
	ctx context.Context, tx pgx.Tx, p Following, after uuid.UUID,
) (work FollowUp, found, done bool, err error) {
	return projection.DoSlice(ctx, tx, p, after)
}
