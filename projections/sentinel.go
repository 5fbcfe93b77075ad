package projections

import (
	"context"
	"time"
)

// sentinel ends all turns as soon as the database loses a connection: it may have crashed, and have forgotten what its
// checkpoints and rows, which do not wait for the disk, were a moment ago. Each turn that is taken then begins at what is left;
// until then nobody is told that the rest is applied.
func (rt *Runtime) sentinel(ctx context.Context) {
	for p := newPause(20*time.Millisecond, time.Second); ctx.Err() == nil; p.wait(ctx) {
		conn, err := rt.db.Acquire(ctx)
		if err != nil {
			continue // the runners say so
		}
		if err = conn.Ping(ctx); err == nil {
			p = newPause(20*time.Millisecond, time.Second)
			// Nobody notifies this connection: the wait ends with it.
			_, err = conn.Conn().WaitForNotification(ctx)
		}
		conn.Release()
		if ctx.Err() != nil {
			return
		}
		rt.log.WarnContext(ctx, "connection to the database lost, looking at the checkpoints again", "err", err)
		for _, r := range rt.runners {
			if t := r.turn.Load(); t != nil {
				t.end()
			}
		}
	}
}
