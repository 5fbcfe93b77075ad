package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/continuity"
	"github.com/annals-project/annals/projections/runner"
)

// compareEvery is how often a process compares the log with what was applied. A process that follows the log, or
// writes to it, notices an older copy at once.
const compareEvery = 5 * time.Second

// comparison compares the log with what the projections of all processes have applied.
type comparison struct {
	log     *continuity.Store
	runtime *runner.Runtime
	logID   func(context.Context) (uuid.UUID, error)
	logger  *slog.Logger
	// id is the id of the log, once it was read.
	id uuid.UUID
}

// run compares until the context ends.
func (c *comparison) run(ctx context.Context) error {
	for sleep(ctx, compareEvery) {
		c.compare(ctx)
	}
	return nil
}

// compare compares once. A log that cannot be read is seen elsewhere; a log that went back is reported by the store.
func (c *comparison) compare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, compareEvery)
	defer cancel()
	err := func() (err error) {
		if c.id == uuid.Nil {
			if c.id, err = c.logID(ctx); err != nil {
				return err
			}
		}
		at, id, err := c.runtime.NewestApplied(ctx, c.id)
		if err != nil {
			return err
		}
		c.log.Applied(at, id)
		return c.log.Check(ctx)
	}()
	if err != nil && c.log.Err() == nil {
		c.logger.DebugContext(ctx, "log not compared with what was applied, will retry", "err", err)
	}
}
