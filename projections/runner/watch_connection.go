package runner

import (
	"context"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
)

// watchConnection ends all leases as soon as the database closes a connection: it may have crashed
// and lost the newest checkpoints and rows, whose commits do not wait for the disk. The next leases
// begin at what is left. Until then no wait for a lost page succeeds: waits rely on what this
// process knows only while a connection is watched.
func (rt *Runtime) watchConnection(ctx context.Context) {
	defer rt.watchedSince.Store(nil) // also after a panic
	for p := (backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}); ctx.Err() == nil; _ = p.Wait(ctx) {
		conn, err := rt.db.Acquire(ctx)
		if err != nil {
			continue // the runners log it
		}
		if err = conn.Ping(ctx); err == nil {
			p.Reset()
			now := time.Now()
			rt.watchedSince.Store(&now)
			// No process notifies this connection: the wait ends with it.
			_, err = conn.Conn().WaitForNotification(ctx)
			rt.watchedSince.Store(nil)
		}
		conn.Release()
		if ctx.Err() != nil {
			return
		}
		rt.log.WarnContext(ctx, "database connection lost, will take the leases again", "err", err)
		for _, r := range rt.runners {
			if l := r.current.Load(); l != nil {
				l.end()
			}
		}
	}
}
