// Package why answers why something is as it is: what became of a send or a call (Explainer, Calls), who may read what
// (Access), what happened to a thing (Histories), what an id names (Finder), and from what a memory comes (Trace).
//
// What a deleted data point left in a call is not returned from the moment of the deletion, also before the log is
// blanked. A history shows no text of customers and no secret: of each event, the fields that history_fields.go lists.
package why

import (
	"context"

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
