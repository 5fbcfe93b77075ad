package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// role is a part of the process that works until its context ends.
type role struct {
	name string
	run  func(ctx context.Context) error
}

// tierPatience is how long a tier may take to stop before the next one is told to stop all the same.
const tierPatience = 15 * time.Second

// runTiers starts every tier together and stops them in order: each is told to stop only after the one before it has
// returned. The end of the context, or of any role, stops them all; the error is that of the roles that failed.
func runTiers(ctx context.Context, tiers ...[]role) error {
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
				err := r.run(groupCtx)
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
