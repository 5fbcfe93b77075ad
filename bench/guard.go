package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/annals-project/annals/internal/bench/hostile"
	"github.com/annals-project/annals/internal/scrape"
)

// goroutines returns how many goroutines the service has. It waits up to 30 s until they are at most
// most; 0 does not wait.
func goroutines(ctx context.Context, base string, most float64) (count float64) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	const tries = 150
	for range tries {
		var err error
		if count, err = scrape.Metric(ctx, base, "go_goroutines"); err == nil && (most == 0 || count <= most) {
			return count
		}
		select {
		case <-ctx.Done():
			return count
		case <-tick.C:
		}
	}
	return count
}

// guard watches the memory of a separate server, kills the server before it uses up the machine, and
// restarts it after it ended by itself.
type guard struct {
	own   *ownServer
	limit int64

	mu       sync.Mutex
	most     int64
	restarts int
	err      error
}

// maxRestarts is how often a server that ends by itself is restarted.
const maxRestarts = 3

// start watches until stop is called. The context that it returns ends if the server is killed or
// cannot be restarted.
func (g *guard) start(ctx context.Context, log io.Writer) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-g.own.exited:
				g.own.showLog(log)
				if err := g.restart(watched); err != nil {
					g.err = err
					cancel(err)
					return
				}
			case <-tick.C:
				resident, err := hostile.Resident(g.own.process.Process.Pid)
				g.mu.Lock()
				g.most = max(g.most, resident)
				g.mu.Unlock()
				if err != nil || resident > g.limit {
					over := fmt.Errorf("the server had %d MiB of memory and was killed", resident>>20)
					g.err = errors.Join(err, over, g.own.process.Process.Kill())
					<-g.own.exited
					g.restarts++
					cancel(g.err)
					return
				}
			}
		}
	})
	return watched, func() {
		close(stopped)
		group.Wait()
		cancel(nil)
	}
}

// restart restarts a server that ended by itself.
func (g *guard) restart(ctx context.Context) error {
	if g.restarts++; g.restarts > maxRestarts {
		return fmt.Errorf("the server ended %d times", g.restarts)
	}
	if _, err := g.own.start(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return nil
}

// reset discards the most memory so far.
func (g *guard) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = 0
}

// peak returns the most memory since the last reset.
func (g *guard) peak() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// ended reports whether the server has ended.
func (g *guard) ended() bool {
	if g.own.process == nil {
		return true
	}
	select {
	case <-g.own.exited:
		return true
	default:
		return false
	}
}
