package trace

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/reads"
)

// Leaves finds what read records say of nodes.
type Leaves struct{ DB *pgxpool.Pool }

// selectLeaves finds revisions, and memories with the part of the text that they rest on.
const selectLeaves = `select r.node_id, r.data_point, r.number, r.leaf, null::int, null::int
	from trace.revisions r where r.node_id = any($1::uuid[]) and r.accepted is not null
	union all select m.id, r.data_point, r.number, r.derived_leaf, t.span_start, t.span_end
	from trace.memories m join trace.revisions r on r.node_id = m.node_id
	left join memories.memories t on t.id = m.id
	where m.id = any($1::uuid[]) and r.derived is not null`

// Leaves returns what is known of nodes that are not erased, by their ids.
func (q Leaves) Leaves(ctx context.Context, nodes []uuid.UUID) (map[uuid.UUID]reads.Shown, error) {
	rows, err := q.DB.Query(ctx, selectLeaves, nodes)
	if err != nil {
		return nil, fmt.Errorf("find the leaves of nodes: %w", err)
	}
	found := make(map[uuid.UUID]reads.Shown, len(nodes))
	var s reads.Shown
	var from, to *int
	_, err = pgx.ForEachRow(rows, []any{&s.Node, &s.DataPoint, &s.Revision, &s.Leaf, &from, &to}, func() error {
		if s.Spans = nil; from != nil {
			s.Spans = []reads.Span{{*from, *to}}
		}
		found[s.Node] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the leaves of nodes: %w", err)
	}
	return found, nil
}
