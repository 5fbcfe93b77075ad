package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/panics"
)

// pageTrees is how many trees are read at a time.
const pageTrees = 256

// Run calls a pass every so often until the context ends. A pass that fails is called again.
func Run(
	ctx context.Context, logger *slog.Logger, task string, every time.Duration, pass func(context.Context) error,
) error {
	for backoff.Pause(ctx, every, nil) == nil {
		err := panics.Call(ctx, logger, "task of the audit log panicked", func() error { return pass(ctx) }, "task", task)
		if err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "task of the audit log failed, will retry", "task", task, "err", err)
		}
	}
	return nil
}

// Copier brings the checkpoint of each tree to places outside.
type Copier struct {
	Trees  Trees
	Kept   checkpoints.Store
	Holder uuid.UUID
	Logger *slog.Logger
	Now    func() time.Time

	mu      sync.Mutex
	waiting map[string]time.Time
	pauses  map[string]*pause
}

// pause is how long a place is left alone after a failure.
type pause struct {
	of    backoff.Backoff
	until time.Time
}

// Waiting returns, by place, since when a checkpoint waits to be there, as of the last pass.
func (c *Copier) Waiting() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.waiting)
}

// lags reads since when the places wait. A process whose turn it is not reads it too.
func (c *Copier) lags(ctx context.Context, places ...string) error {
	waiting, err := c.Kept.Waiting(ctx, places)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = waiting
	return nil
}

// isPaused reports whether something is left alone after a failure.
func (c *Copier) isPaused(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, is := c.pauses[what]
	return is && c.Now().Before(p.until)
}

// failed leaves something alone for a while, longer after each failure; without an error it ends that.
func (c *Copier) failed(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.pauses, what)
		return
	}
	p, is := c.pauses[what]
	if !is {
		if c.pauses == nil {
			c.pauses = map[string]*pause{}
		}
		p = &pause{of: backoff.Backoff{First: 5 * time.Second, Longest: 5 * time.Minute}}
		c.pauses[what] = p
	}
	p.until = c.Now().Add(p.of.Next())
}

// pages calls do with all trees that have a checkpoint, a page at a time, while this process has the turn of a task.
func (c *Copier) pages(ctx context.Context, task string, do func([]Tree, []uuid.UUID) error) error {
	mine := checkpoints.Turn{Task: task, Holder: c.Holder, Last: turn}
	var after *uuid.UUID
	var errs []error
	for {
		if is, err := c.Kept.Take(ctx, mine); err != nil || !is {
			return errors.Join(append(errs, err)...)
		}
		page, err := c.Trees.Trees(ctx, after, pageTrees)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list the audit trees: %w", err))...)
		}
		var signed []Tree
		var organizations []uuid.UUID
		for _, t := range page {
			if t.Checkpoint != "" {
				signed, organizations = append(signed, t), append(organizations, t.Organization)
			}
		}
		if len(signed) > 0 {
			errs = append(errs, do(signed, organizations))
		}
		if len(page) < pageTrees {
			return errors.Join(append(errs, c.Kept.Pass(ctx, mine))...)
		}
		after = &page[len(page)-1].Organization
	}
}

// copyOf returns how far a place has a tree: not at all if it has another origin.
func copyOf(known map[uuid.UUID]checkpoints.Copy, t Tree) checkpoints.Copy {
	origin, _, _ := strings.Cut(t.Checkpoint, "\n")
	c := known[t.Organization]
	if c.Origin != origin {
		return checkpoints.Copy{Organization: t.Organization, Origin: origin, Since: c.Since}
	}
	return c
}
