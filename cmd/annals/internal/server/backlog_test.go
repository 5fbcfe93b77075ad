package server

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/admission"
)

var acme, globe, initech = uuid.New(), uuid.New(), uuid.New()

// ownersFixture has a backlog, and projects. Each is in an organization of the same id, or in that of owned.
type ownersFixture struct {
	*pressureFixture
	owned map[uuid.UUID]uuid.UUID
}

func newOwnersFixture() *ownersFixture {
	c := &ownersFixture{newPressureFixture(), map[uuid.UUID]uuid.UUID{}}
	c.backlog = &backlog{}
	c.backlog.Begins(0)
	c.owners = func(_ context.Context, projects []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
		owners := map[uuid.UUID]uuid.UUID{}
		for _, id := range projects {
			if owners[id] = id; c.owned[id] != uuid.Nil {
				owners[id] = c.owned[id]
			}
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
	for _, project := range []uuid.UUID{acme, globe, initech} {
		want := slices.Contains(taken, project)
		for _, lane := range []admission.Lane{admission.Bulk, admission.Settled, admission.NoRoom} {
			why := c.why(project, lane)
			if lane == admission.Settled && c.state().has(projectDelays) {
				continue // it derives nothing
			}
			if (why == "") != (want || lane == admission.NoRoom) {
				t.Errorf("%s: lane %q of project %d waits because %q, want taken %t", when, lane, 1+indexOf(project), why, want)
			}
		}
	}
}

// why is why a write of a project waits or is refused.
func (s *pressureFixture) why(project uuid.UUID, lane admission.Lane) string {
	if err := s.refuse(lane); err != nil {
		return err.Error()
	}
	return s.state().waits(project, lane)
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
	c.arrive(globe, 2*segmentEvents, 10)
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

// Of an organization that is ahead, the projects with the most wait until the others fit into its share.
func TestBackpressure_ProjectsOfAnOrganization(t *testing.T) {
	c := newOwnersFixture()
	c.owned[acme], c.owned[globe] = initech, initech
	c.arrive(acme, 20_000, 10)
	c.arrive(globe, ownLagEvents/2, 10)
	c.check(t.Context())
	c.clock = c.clock.Add(ownLagTime)
	c.wants(t, "one is far ahead", globe, initech)
	c.arrive(initech, ownLagEvents/3, 10)
	c.wants(t, "three together, two of them fit", globe, initech)
	c.position = 20_000
	c.wants(t, "caught up with the first", acme, globe, initech)
}

// The budget of batches follows what is applied while that is late, and has a floor.
func TestSpeed_Measured(t *testing.T) {
	b, s, at := &backlog{}, speed{}, time.Unix(0, 0)
	b.clock = func() time.Time { return at }
	if budget, _, _ := s.measure(b, 0, at, true); budget != 0 {
		t.Errorf("without a backlog the budget is %d", budget)
	}
	b.Begins(0)
	c := newOwnersFixture()
	c.backlog = b
	budget, all, _ := s.measure(b, 0, at, true)
	if budget != limit.BatchItems || all != 0 {
		t.Errorf("at first the budget is %d, unapplied %d", budget, all)
	}
	applied := 0
	c.arrive(acme, 80*segmentEvents, 10)
	for range 60 { // 160 segments a second are applied, each half a second after it arrived
		c.arrive(acme, 40*segmentEvents, 10)
		applied += 40 * segmentEvents
		at = at.Add(250 * time.Millisecond)
		budget, all, _ = s.measure(b, eventstore.Position(applied), at, true)
	}
	want := int(160 * segmentEvents * paceTime.Seconds())
	if budget < want*9/10 || budget > want*11/10 || all != 80*segmentEvents {
		t.Errorf("the budget is %d, want about %d; unapplied %d", budget, want, all)
	}
}

// Projections that pause between pages have events to apply at each check. The budget grows while writes wait, and
// nothing is late: what is applied then is what was let in.
func TestSpeed_NothingIsLate(t *testing.T) {
	for _, waiting := range []bool{true, false} {
		b, s, at := &backlog{}, speed{}, time.Unix(0, 0)
		b.clock = func() time.Time { return at }
		b.Begins(0)
		c := newOwnersFixture()
		c.backlog = b
		var budgets []int
		applied := 0
		for range 20 {
			c.arrive(acme, 10*segmentEvents, 10)
			at = at.Add(250 * time.Millisecond)
			budget, _, _ := s.measure(b, eventstore.Position(applied), at, waiting)
			budgets = append(budgets, budget)
			applied += 10 * segmentEvents
		}
		grown := budgets[len(budgets)-1] > 3*budgets[0]
		if grown != waiting || !slices.IsSorted(budgets) {
			t.Errorf("writes wait: %t, budgets %d", waiting, budgets)
		}
	}
}
