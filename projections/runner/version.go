package runner

import (
	"context"
	"fmt"

	"github.com/annals-project/annals/eventstore"
)

// Queries are written for one version of the rows. A process that finds rows of an older version
// builds its own in a shadow and switches over. Until then its queries of the projection fail, and
// processes of the older version continue with the older rows. A process that finds rows of a newer
// version stops the projection.

// outdatedError means that the rows are of an older version.
type outdatedError struct{ before, after int }

func (e *outdatedError) Error() string {
	return fmt.Sprintf("its rows are of version %d, and version %d is being built in a shadow", e.before, e.after)
}

func (r *runner) checkVersion(row checkpoint) error {
	if row.version < r.projector.Version() {
		return &outdatedError{before: row.version, after: r.projector.Version()}
	}
	return r.stopFor(fmt.Errorf("its rows are of version %d of a newer program, and this one reads version %d: "+
		"start the newer program, or rebuild the projection with this one",
		row.version, r.projector.Version()))
}

// upgrade builds the rows of this version in a shadow and switches over.
func (r *runner) upgrade(ctx context.Context, outdated *outdatedError) error {
	r.progress.change(func(p *progress) { p.lastErr = outdated })
	r.log.InfoContext(ctx, "building new version of projection in a shadow",
		"version", outdated.after, "before", outdated.before)
	return r.rebuild(ctx, RebuildOptions{}, func(p RebuildProgress) {
		r.progress.change(func(now *progress) {
			now.lastErr = fmt.Errorf("%w: position %d of %d", outdated, p.Position, max(p.Head, eventstore.Position(1)))
		})
	})
}
