package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/auth"
)

var acme, globe, initech = uuid.New(), uuid.New(), uuid.New()

// ownersFixture has a backlog, and organizations that own the project of the same id.
type ownersFixture struct {
	*pressureFixture
}

func newOwnersFixture() *ownersFixture {
	c := &ownersFixture{newPressureFixture()}
	c.backlog = &backlog{}
	c.backlog.Begins(0)
	c.owners = func(_ context.Context, projects []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
		owners := map[uuid.UUID]uuid.UUID{}
		for _, id := range projects {
			owners[id] = id
		}
		return owners, c.broken
	}
	return c
}

func (c *ownersFixture) arrive(project uuid.UUID, n int, bytes int64) {
	for range n {
		c.headNow++
		c.backlog.Arrived(eventstore.DecodedEvent{
			Recorded: eventstore.Recorded{Position: c.headNow},
			Event:    &datapoint.Moved{Send: datapoint.Send{ProjectID: project, Bytes: bytes}},
		})
	}
}

func (c *ownersFixture) wants(t *testing.T, when string, taken ...uuid.UUID) {
	t.Helper()
	c.check(t.Context())
	for _, organization := range []uuid.UUID{acme, globe, initech} {
		want := false
		for _, id := range taken {
			want = want || id == organization
		}
		for _, deletion := range []bool{false, true} {
			if err := c.refuse(auth.Principal{OrganizationID: organization}, deletion); (err == nil) != want {
				t.Errorf("%s: organization %d is answered with %v, want taken %t", when, 1+indexOf(organization), err, want)
			}
		}
	}
}

func indexOf(id uuid.UUID) int {
	for i, o := range []uuid.UUID{acme, globe, initech} {
		if o == id {
			return i
		}
	}
	return -1
}

func TestBackpressure_OrganizationAheadOfOthers(t *testing.T) {
	c := newOwnersFixture()
	c.arrive(acme, 20000, 10)
	c.arrive(globe, ownLagEvents, 10)
	c.wants(t, "much to do for a moment", acme, globe, initech)
	c.clock = c.clock.Add(ownLagTime - time.Millisecond)
	c.wants(t, "not yet for long", acme, globe, initech)
	c.clock = c.clock.Add(time.Millisecond)
	c.wants(t, "for long: the one with the most", globe, initech)
	// Without the backlog all would be refused by now.
	c.clock = c.clock.Add(lagTime)
	c.arrive(initech, 100, 10)
	c.wants(t, "for longer than all others are given", globe, initech)
	c.arrive(globe, segmentEvents, 10)
	c.wants(t, "a second one", initech)
	if got := c.reasons(); len(got) != 1 {
		t.Errorf("reasons for the operator: %q", got)
	}
	// Half of its own events are left.
	c.position = 20000 - ownLagEvents
	c.wants(t, "caught up with most of it", initech)
	c.position = 20000
	c.wants(t, "caught up with all of the first", acme, initech)
	c.position = c.headNow
	c.wants(t, "caught up", acme, globe, initech)
}

func TestBackpressure_ManySendTogether(t *testing.T) {
	c := newOwnersFixture()
	c.arrive(acme, 5000, 10)
	for range lagEvents + segmentEvents {
		c.arrive(uuid.New(), 1, 10)
	}
	c.check(t.Context())
	c.clock = c.clock.Add(ownLagTime)
	c.wants(t, "one first", globe, initech)
	c.clock = c.clock.Add(lagTime)
	c.wants(t, "then all")
}

func TestBackpressure_BytesOfAnOrganization(t *testing.T) {
	c := newOwnersFixture()
	c.arrive(acme, 16, 2<<20)
	c.arrive(globe, 17, 2<<20)
	c.check(t.Context())
	c.clock = c.clock.Add(ownLagTime)
	c.wants(t, "at and over the limit", acme, initech)
}

func TestBackpressure_WithoutBacklog(t *testing.T) {
	c := newOwnersFixture()
	c.arrive(acme, 20000, 10)
	c.backlog.Begins(c.headNow) // as after a start
	c.check(t.Context())
	c.clock = c.clock.Add(ownLagTime)
	c.wants(t, "before the limit of all", acme, globe, initech)
	c.clock = c.clock.Add(lagTime)
	c.wants(t, "over the limit of all")
	c.position = c.headNow
	c.wants(t, "caught up", acme, globe, initech)
}

func TestBackpressure_ErrorKeepsResult(t *testing.T) {
	c := newOwnersFixture()
	c.arrive(acme, 20000, 10)
	c.check(t.Context())
	c.clock = c.clock.Add(ownLagTime)
	c.wants(t, "refused", globe, initech)
	c.broken = errors.New("the database does not answer")
	c.position = c.headNow
	c.wants(t, "still", globe, initech)
	c.broken = nil
	c.wants(t, "taken again", acme, globe, initech)
}

func TestBacklog_Bounds(t *testing.T) {
	t.Parallel()
	b := &backlog{}
	b.Begins(0)
	const events = 3 * maxSegments * segmentEvents
	moved := &datapoint.Moved{Send: datapoint.Send{ProjectID: acme}}
	for n := range events {
		b.Arrived(eventstore.DecodedEvent{Recorded: eventstore.Recorded{Position: eventstore.Position(n + 1)}, Event: moved})
	}
	if n := len(b.segments); n > maxSegments {
		t.Errorf("it has %d segments", n)
	}
	all, shares, ok := b.after(0)
	if !ok || all.events != events || shares[acme].events != events {
		t.Errorf("account of %d events is %+v, %+v, %t", events, all, shares, ok)
	}
	if b.applied(events); len(b.segments) != 0 {
		t.Errorf("%d segments are left", len(b.segments))
	}
	if _, _, ok := b.after(events - 1); ok {
		t.Error("the account answers for what it forgot")
	}
}

func TestBacklog_AmountOfEvents(t *testing.T) {
	name := "blob-x-y"
	for what, c := range map[string]struct {
		event   event.Event
		stream  string
		project uuid.UUID
		amount  amount
	}{
		"text in a blob":            {&datapoint.RevisionAccepted{Send: datapoint.Send{ProjectID: acme, Bytes: 1 << 21}}, "datapoint-x", acme, amount{1, 1 << 21}},
		"an event of another shape": {&identity.Removed{ProjectID: globe}, "identity-x", globe, amount{1, 4}},
		"the store's own":           {&eventstore.Tombstoned{Stream: name}, feed.SystemStream, uuid.Nil, amount{}},
		"undecodable":               {nil, "datapoint-x", uuid.Nil, amount{1, 4}},
	} {
		project, w := amountOf(eventstore.DecodedEvent{Recorded: eventstore.Recorded{
			Stream: c.stream,
			Data:   []byte("1234"),
		}, Event: c.event})
		if w.bytes == int64(eventstore.Recorded{Stream: c.stream, Data: []byte("1234")}.Size()) {
			w.bytes = 4 // what the store counts of an event of four bytes
		}
		if project != c.project || w != c.amount {
			t.Errorf("%s: %s %+v, want %s %+v", what, project, w, c.project, c.amount)
		}
	}
	b := &backlog{}
	b.Begins(0)
	b.Arrived(eventstore.DecodedEvent{
		Recorded: eventstore.Recorded{Position: 1, Stream: name},
		Event:    &blob.Opened{ProjectID: acme},
	})
	b.Arrived(eventstore.DecodedEvent{Recorded: eventstore.Recorded{Position: 2, Stream: name}, Event: blob.Chunk{}})
	if _, shares, _ := b.after(0); shares[acme].events != 2 {
		t.Errorf("the chunk belongs to nobody: %+v", shares)
	}
}
