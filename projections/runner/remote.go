package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

const (
	// othersPoll is how often a process reads the checkpoints that its watchers wait for and other
	// processes move.
	othersPoll = 100 * time.Millisecond
	// othersLimit bounds one such read.
	othersLimit = 5 * time.Second
	// remoteSetAsidePoll is how often a process without projectors reads what was set aside.
	remoteSetAsidePoll = 5 * time.Second
)

// runRemote is Run of a process whose projectors run in others.
func (rt *Runtime) runRemote(ctx context.Context) error {
	if rt.observer != nil {
		rt.feed.Observe(rt.observer)
	}
	rt.watch(ctx, rt.followOthers, rt.pollSetAside)()
	if err := rt.feed.Close(); err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	return nil
}

// followOthers wakes the watchers of projections that another process moves. Without a watcher it
// reads nothing.
func (rt *Runtime) followOthers(ctx context.Context) {
	seen := map[string]eventstore.Position{}
	for ctx.Err() == nil {
		_ = backoff.Pause(ctx, othersPoll, nil)
		for _, r := range rt.runners {
			if !r.progress.isWatchedElsewhere() {
				continue
			}
			limited, cancel := context.WithTimeout(ctx, othersLimit)
			row, err := r.table.read(limited)
			cancel()
			// A failed read is not logged: the watchers poll too, and log theirs.
			if name := r.projector.Name(); err == nil && row.position != seen[name] {
				seen[name] = row.position
				r.progress.change(func(*progress) {})
			}
		}
	}
}

// pollSetAside reads what was set aside, since no page does.
func (rt *Runtime) pollSetAside(ctx context.Context) {
	for ctx.Err() == nil {
		if err := rt.setAside.Refresh(ctx); err != nil && ctx.Err() == nil {
			rt.log.WarnContext(ctx, "read of events set aside failed, will retry", "err", err)
		}
		_ = backoff.Pause(ctx, remoteSetAsidePoll, nil)
	}
}
