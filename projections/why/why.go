// Package why answers why something is as it is: what became of a send or a call (Explainer, Calls), who may read what
// (Access), what an id names (Finder), and from what a memory comes (Trace).
//
// What a deleted data point left in a call is not returned from the moment of the deletion, also before the log is
// blanked.
package why

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/projections"
)

// again reads and, unless that is complete, reads again once the named projections have applied what the log holds:
// what was answered just now may be in no table before.
func again(
	ctx context.Context, head projections.Head, read func() (complete bool, err error), names ...string,
) (complete bool, err error) {
	if complete, err = read(); complete || err != nil {
		return complete, err
	}
	if err = head.Await(ctx, names...); err != nil {
		return false, err
	}
	return read()
}

// again is again for the projections of a trace.
func (s *Trace) again(ctx context.Context, read func() (complete bool, err error)) (complete bool, err error) {
	return again(ctx, s.Head, read, projection.Trace, projection.DataPoints, projection.Memories)
}

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
