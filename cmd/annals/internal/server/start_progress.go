package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// progressEvery is how often a start that reads the log logs how far it is.
const progressEvery = 10 * time.Second

// startProgress is how far the projections have read the log at a start, as after a restore.
type startProgress struct {
	now func() time.Time

	mu sync.Mutex
	// goal is the head of the log at the start, 0 while it is not known.
	goal  eventstore.Position
	first map[string]seenAt // by projection
	done  bool
}

// seenAt is a position of a projection at the time when it was first seen.
type seenAt struct {
	position eventstore.Position
	at       time.Time
}

// begin sets the goal.
func (s *startProgress) begin(goal eventstore.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goal, s.first = goal, map[string]seenAt{}
}

// catchingUp is the projection that is furthest from the goal.
type catchingUp struct {
	projection     string
	position, goal eventstore.Position
	// rate is in positions a second, left the time that is left at that rate. Both are 0 until they are known.
	rate float64
	left time.Duration
}

// String describes it in one line.
func (c catchingUp) String() string {
	text := fmt.Sprintf("the projection %s has read %.0f %% of the log (position %d of %d)",
		c.projection, 100*float64(c.position)/float64(c.goal), c.position, c.goal)
	if c.rate > 0 {
		text += fmt.Sprintf(", %.0f positions/s, %s left", c.rate, c.left.Round(time.Second))
	}
	return text
}

// of returns the projection that is furthest from the goal, false once all are there, and while that is not known. It
// considers those that a start waits for, and the recall index of this process.
func (s *startProgress) of(list []runner.Status) (c catchingUp, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.goal == 0 || s.done || slices.ContainsFunc(list, func(p runner.Status) bool { return p.IsUnread }) {
		return catchingUp{}, false
	}
	counted := append(slices.Clone(neededByWrites), memories.Name, recallindex.Name)
	for _, p := range list {
		if !slices.Contains(counted, p.Name) || p.Stop != nil || p.Position >= s.goal || ok && p.Position >= c.position {
			continue
		}
		c, ok = catchingUp{projection: p.Name, position: p.Position, goal: s.goal}, true
	}
	if !ok {
		s.done = len(list) > 0
		return catchingUp{}, false
	}
	first, seen := s.first[c.projection]
	if !seen || c.position < first.position { // one that begins again has another pace
		s.first[c.projection] = seenAt{c.position, s.now()}
		return c, true
	}
	took := s.now().Sub(first.at).Seconds()
	if moved := c.position - first.position; moved > 0 && took > 0 {
		c.rate = float64(moved) / took
		c.left = time.Duration(float64(c.goal-c.position) / c.rate * float64(time.Second))
	}
	return c, true
}

// isDone reports whether there is nothing to read, or nothing left.
func (s *startProgress) isDone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done || s.goal == 0
}

// reportProgress logs how far the start is, until the context ends or all is read.
func (s *startup) reportProgress(ctx context.Context) {
	for sleep(ctx, progressEvery) {
		c, ok := s.progress.of(s.read.runtime.Health(ctx))
		if s.progress.isDone() {
			return
		}
		if !ok {
			continue
		}
		s.logger.InfoContext(ctx, "start: projections read the log", "projection", c.projection,
			"position", uint64(c.position), "head", uint64(c.goal), "positions_per_second", int64(c.rate), "left", c.left.Round(time.Second).String())
	}
}
