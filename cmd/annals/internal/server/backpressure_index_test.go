package server

import (
	"context"
	"testing"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// newIndexFixture returns an ownersFixture whose recall index is at a position of its own. All
// other projections have applied everything.
func newIndexFixture() (c *ownersFixture, at *eventstore.Position, working *bool) {
	c = newOwnersFixture()
	at, working = new(eventstore.Position), new(bool)
	*working = true
	c.index = func(context.Context) (runner.Status, bool) {
		return runner.Status{Name: recallindex.Name, Position: *at}, *working
	}
	return c, at, working
}

func TestBackpressure_OrganizationDelaysOthersInIndex(t *testing.T) {
	c, at, _ := newIndexFixture()
	c.arrive(acme, indexLagEvents+1, 10)
	c.position = c.headNow
	c.wants(t, "nobody else waits", acme, globe, initech)
	c.clock = c.clock.Add(time.Hour)
	c.wants(t, "nobody else waits, for long", acme, globe, initech)

	c.arrive(globe, 1, 10)
	c.position = c.headNow
	*at = 1 // the index moves on
	c.wants(t, "another one waits", globe, initech)
	*at = c.headNow
	c.wants(t, "caught up", acme, globe, initech)

	c.arrive(acme, indexLagEvents, 10)
	c.arrive(globe, segmentEvents, 10)
	c.position = c.headNow
	c.wants(t, "no more than may be", acme, globe, initech)
	c.clock = c.clock.Add(indexLagTime)
	c.wants(t, "no more than may be, for long", acme, globe, initech)
}

func TestBackpressure_IndexLateForAMoment(t *testing.T) {
	c, at, _ := newIndexFixture()
	c.wants(t, "at the head", acme, globe, initech)
	c.arrive(acme, 20_000, 10)
	c.arrive(globe, 1, 10)
	c.position = c.headNow
	c.wants(t, "a page at work", acme, globe, initech)
	c.clock = c.clock.Add(indexLagTime - time.Millisecond)
	c.wants(t, "not yet late", acme, globe, initech)
	c.clock = c.clock.Add(time.Millisecond)
	c.wants(t, "late", globe, initech)
	*at = c.headNow
	c.wants(t, "caught up", acme, globe, initech)
}

func TestBackpressure_StoppedIndex(t *testing.T) {
	c, _, working := newIndexFixture()
	*working = false
	c.arrive(acme, 20_000, 10)
	c.arrive(globe, 1, 10)
	c.position = c.headNow
	c.check(t.Context())
	c.clock = c.clock.Add(time.Hour)
	c.wants(t, "whatever waits", acme, globe, initech)
	if _, _, ok := c.backlog.after(c.headNow - 1); ok {
		t.Error("the account keeps what only a stopped index has to apply")
	}
}
