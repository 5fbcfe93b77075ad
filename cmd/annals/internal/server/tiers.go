package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/internal/panics"
)

// task is a part of the process that runs until its context ends.
type task struct {
	name string
	run  func(ctx context.Context) error
}

// restarting returns tasks whose panic does not end the process: each restarts after a pause.
func restarting(logger *slog.Logger, tier []task) []task {
	wrapped := make([]task, len(tier))
	for i, r := range tier {
		wrapped[i] = task{r.name, func(ctx context.Context) error {
			for pause := firstRestart; ; pause = min(2*pause, longestRestart) {
				err := panics.Call(ctx, logger, "task panicked, will restart", func() error { return r.run(ctx) }, "task", r.name)
				if _, panicked := errors.AsType[*panics.Error](err); !panicked {
					return err
				}
				if !sleep(ctx, pause) {
					return nil
				}
			}
		}}
	}
	return wrapped
}

// The first and the longest pause before a task that panicked restarts.
const (
	firstRestart   = time.Second
	longestRestart = time.Minute
)

// tierTimeout is how long a tier may take to stop. After it the next tier is stopped anyway.
const tierTimeout = 15 * time.Second

// runTiers starts all tiers together. It stops them in order, each after the one before it has
// returned, when the context or any task ends. The error joins those of the tasks that failed. A
// panic of a task is its error.
func runTiers(ctx context.Context, logger *slog.Logger, tiers ...[]task) error {
	type running struct {
		stop context.CancelFunc
		done chan error
	}
	started := make([]running, len(tiers))
	ended := make(chan struct{}, len(tiers))
	for i, tier := range tiers {
		tierCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
		g, groupCtx := errgroup.WithContext(tierCtx)
		if len(tier) == 0 { // its end would stop the others
			tier = []task{{"none", func(ctx context.Context) error { <-ctx.Done(); return nil }}}
		}
		for _, r := range tier {
			g.Go(func() error {
				err := panics.Call(groupCtx, logger, "task panicked", func() error { return r.run(groupCtx) }, "task", r.name)
				if groupCtx.Err() == nil && err == nil {
					err = errors.New("ended unexpectedly")
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					return fmt.Errorf("%s: %w", r.name, err)
				}
				return nil
			})
		}
		done := make(chan error, 1)
		go func() {
			done <- g.Wait()
			ended <- struct{}{}
		}()
		started[i] = running{stop, done}
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	var errs []error
	for _, r := range started {
		r.stop()
		timer := time.NewTimer(tierTimeout)
		select {
		case err := <-r.done:
			errs = append(errs, err)
		case <-timer.C:
			errs = append(errs, fmt.Errorf("a part of the process did not stop within %s", tierTimeout))
		}
		timer.Stop()
	}
	return errors.Join(errs...)
}
