package main

import (
	"context"
	"testing"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
)

// newIndexed is a crowd whose recall index is at a position of its own; all other projections have applied everything.
func newIndexed() (c *crowd, at *eventstore.Position, working *bool) {
	c = newCrowd()
	at, working = new(eventstore.Position), new(bool)
	*working = true
	c.index = func(context.Context) (projections.Status, bool) {
		return projections.Status{Name: recallindex.Name, Position: *at}, *working
	}
	return c, at, working
}

func TestPressure_OrganizationThatOthersWaitForInTheIndex(t *testing.T) {
	c, at, _ := newIndexed()
	c.arrive(acme, crowdedEvents+1, 10)
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

	c.arrive(acme, crowdedEvents, 10)
	c.arrive(globe, segmentEvents, 10)
	c.position = c.headNow
	c.wants(t, "no more than may be", acme, globe, initech)
	c.clock = c.clock.Add(crowdedFor)
	c.wants(t, "no more than may be, for long", acme, globe, initech)
}

func TestPressure_IndexIsLateForAMomentOnly(t *testing.T) {
	c, at, _ := newIndexed()
	c.wants(t, "at the head", acme, globe, initech)
	c.arrive(acme, 20_000, 10)
	c.arrive(globe, 1, 10)
	c.position = c.headNow
	c.wants(t, "a page at work", acme, globe, initech)
	c.clock = c.clock.Add(crowdedFor - time.Millisecond)
	c.wants(t, "not yet late", acme, globe, initech)
	c.clock = c.clock.Add(time.Millisecond)
	c.wants(t, "late", globe, initech)
	*at = c.headNow
	c.wants(t, "caught up", acme, globe, initech)
}

func TestPressure_IndexThatStoppedRefusesNobody(t *testing.T) {
	c, _, working := newIndexed()
	*working = false
	c.arrive(acme, 20_000, 10)
	c.arrive(globe, 1, 10)
	c.position = c.headNow
	c.look(t.Context())
	c.clock = c.clock.Add(time.Hour)
	c.wants(t, "whatever waits", acme, globe, initech)
	if _, _, ok := c.backlog.after(c.headNow - 1); ok {
		t.Error("the account keeps what only a stopped index has to apply")
	}
}
