package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
)

const (
	// maxRestarts is how often a server may end by itself within restartWindow: one that ends again and again is not
	// repaired by another start.
	maxRestarts   = 5
	restartWindow = 10 * time.Minute
)

// Supervise starts the server again whenever it ends by itself, as after a crash or a kill, until ctx ends. Connections
// of before fail; new ones are accepted once the recovery of the server has ended. It fails if the server does not
// accept connections within the time of a start, or ends too often.
func (s *Server) Supervise(ctx context.Context) error {
	var ends []time.Time
	for {
		p := s.running()
		select {
		case <-ctx.Done():
			return nil
		case <-p.done:
		}
		if ctx.Err() != nil {
			return nil
		}
		ends = append(ends, time.Now())
		for time.Since(ends[0]) > restartWindow {
			ends = ends[1:]
		}
		if len(ends) > maxRestarts {
			return fmt.Errorf("the private Postgres ended %d times within %s, the last time with: %w: %s",
				len(ends), restartWindow, errors.Join(p.err), p.output)
		}
		s.logger.ErrorContext(ctx, "postgres ended by itself, will start it again", "err", p.err, "output", p.output.String())
		if err := s.restart(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("start the private Postgres again: %w", err)
		}
		s.logger.InfoContext(ctx, "postgres accepts connections again",
			"took", time.Since(ends[len(ends)-1]).Round(time.Millisecond).String())
	}
}

// restart starts the server until it accepts connections. What is left of the one before may hold its memory for a
// moment.
func (s *Server) restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for wait := (backoff.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second}); ; {
		err := s.cluster.stopOrphan(ctx)
		if err == nil {
			err = s.run(ctx)
		}
		if err == nil {
			return nil
		}
		if wait.Wait(ctx) != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
