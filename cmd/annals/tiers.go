package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/internal/panics"
)

// role is a part of the process that works until its context ends.
type role struct {
	name string
	run  func(ctx context.Context) error
}

// restarting are roles whose panic does not end the process: each runs again after a pause.
func restarting(log *slog.Logger, tier []role) []role {
	again := make([]role, len(tier))
	for i, r := range tier {
		again[i] = role{r.name, func(ctx context.Context) error {
			for pause := firstRestart; ; pause = min(2*pause, longestRestart) {
				err := panics.Call(ctx, log, "role panicked, will restart", func() error { return r.run(ctx) }, "role", r.name)
				if _, panicked := errors.AsType[*panics.Error](err); !panicked {
					return err
				}
				if !sleep(ctx, pause) {
					return nil
				}
			}
		}}
	}
	return again
}

// The first and the longest pause before a role that panicked runs again.
const (
	firstRestart   = time.Second
	longestRestart = time.Minute
)

// tierPatience is how long a tier may take to stop before the next one is told to stop all the same.
const tierPatience = 15 * time.Second

// runTiers starts every tier together and stops them in order: each is told to stop only after the one before it has
// returned. The end of the context, or of any role, stops them all; the error is that of the roles that failed. A panic of a
// role is its error.
func runTiers(ctx context.Context, log *slog.Logger, tiers ...[]role) error {
	type running struct {
		stop context.CancelFunc
		done chan error
	}
	started := make([]running, len(tiers))
	ended := make(chan struct{}, len(tiers))
	for i, tier := range tiers {
		tierCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
		g, groupCtx := errgroup.WithContext(tierCtx)
		for _, r := range tier {
			g.Go(func() error {
				err := panics.Call(groupCtx, log, "role panicked", func() error { return r.run(groupCtx) }, "role", r.name)
				if groupCtx.Err() == nil && err == nil {
					err = errors.New("ended by itself")
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
		timer := time.NewTimer(tierPatience)
		select {
		case err := <-r.done:
			errs = append(errs, err)
		case <-timer.C:
			errs = append(errs, fmt.Errorf("a part of the process did not stop within %s", tierPatience))
		}
		timer.Stop()
	}
	return errors.Join(errs...)
}
