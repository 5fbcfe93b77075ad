package why

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/readlog"
)

// show adds nodes to the read of the request.
func show[T any](ctx context.Context, way reads.Way, list []T, id func(T) uuid.UUID) error {
	read := readlog.From(ctx)
	if read == nil {
		return nil
	}
	shown := make([]reads.Shown, len(list))
	for i, item := range list {
		shown[i].Node = id(item)
	}
	return read.Show(ctx, way, shown...)
}

// showOne is show of one node.
func showOne(ctx context.Context, way reads.Way, id uuid.UUID) error {
	return show(ctx, way, []uuid.UUID{id}, func(id uuid.UUID) uuid.UUID { return id })
}

// idOfRoot is the id of a node of a list of roots.
func idOfRoot(r Root) uuid.UUID { return r.ID }

// nodeOf returns the node that holds the text of a node of the graph: of a passage, that of its source.
func (g *Graph) nodeOf(id uuid.UUID) uuid.UUID {
	if g.passage != 0 && g.byID[id] == g.passage {
		return g.ID
	}
	return id
}
