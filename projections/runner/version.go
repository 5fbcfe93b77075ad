package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
)

// Queries are written for one version of the rows, and perhaps for the one before. A process that
// finds rows of an older version builds its own in a shadow and switches over. Until then it feeds and
// reads the older rows if its projector continues them; if not, its queries of the projection fail, and
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

// upgradePause is the longest pause before a failed upgrade next to the live rows is tried again.
const upgradePause = 10 * time.Second

// upgradeBeside builds the rows of this version in a shadow and switches over, while this process
// feeds the older rows. It retries until the rows are of this version or the context ends: a lease
// that passes to another process and back interrupts it no further than the build of a page.
func (r *runner) upgradeBeside(ctx context.Context) {
	defer r.upgrading.Store(false)
	r.log.InfoContext(ctx, "building new version of projection next to the one in use", "version", r.projector.Version())
	for p := (backoff.Backoff{First: 100 * time.Millisecond, Longest: upgradePause}); ctx.Err() == nil; _ = p.Wait(ctx) {
		err := panics.Call(ctx, r.log, "upgrade of a projection panicked, will retry", func() error {
			return r.rebuild(ctx, RebuildOptions{}, nil)
		})
		if err == nil || ctx.Err() != nil {
			return
		}
		row, failed := r.table.read(ctx)
		if failed == nil && row.version >= r.projector.Version() {
			return // another process or an operator was faster
		}
		r.log.WarnContext(ctx, "new version of projection not built, will retry", "err", errors.Join(err, failed))
	}
}
