package projections

import (
	"context"
	"fmt"

	"github.com/annals-project/annals/eventstore"
)

// Queries belong to a version: rows of one version answer no query of another. So a process that finds rows of an older version
// builds its own beside them and puts them in their place; until then it answers nothing that rests on the projection, and
// processes of the older version go on with the older rows. One that finds rows of a newer version stops.

// outdatedError is a projection whose rows are of an older version.
type outdatedError struct{ before, after int }

func (e *outdatedError) Error() string {
	return fmt.Sprintf("its rows are of version %d, and version %d is built beside them", e.before, e.after)
}

func (r *runner) otherVersion(row checkpoint) error {
	if row.version < r.projector.Version() {
		return &outdatedError{before: row.version, after: r.projector.Version()}
	}
	return r.stopFor(fmt.Errorf("its rows are of version %d, made by a newer program, and this one reads version %d: start the newer program, or rebuild the projection with this one",
		row.version, r.projector.Version()))
}

// upgrade builds the rows of this version beside the older ones, and switches.
func (r *runner) upgrade(ctx context.Context, outdated *outdatedError) error {
	r.progress.change(func(p *progress) { p.trouble = outdated })
	r.log.InfoContext(ctx, "building projection beside the one of an older version", "version", outdated.after, "before", outdated.before)
	return r.rebuild(ctx, func(p RebuildProgress) {
		r.progress.change(func(now *progress) {
			now.trouble = fmt.Errorf("%w: position %d of %d", outdated, p.Position, max(p.Head, eventstore.Position(1)))
		})
	})
}
