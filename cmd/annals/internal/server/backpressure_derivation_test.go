package server

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/datapoints"
)

// queue is a fake of the derivation queue.
type queue struct {
	*ownersFixture
	datapoints.Waiting
	of map[uuid.UUID]int
	// after is the position of the last call.
	after eventstore.Position
	// leased is true while another process derives.
	leased bool
}

func newQueueFixture(t *testing.T) *queue {
	t.Helper()
	q := &queue{ownersFixture: newOwnersFixture(), of: map[uuid.UUID]int{}}
	q.backpressure.clock = func() time.Time { return q.ownersFixture.pressureFixture.clock }
	q.queue = q.asked()
	if err := q.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	return q
}

type fakeQueue struct{ *queue }

func (q *queue) asked() derivationQueue { return fakeQueue{q} }

func (q fakeQueue) Waiting(_ context.Context, after eventstore.Position, _ int) (datapoints.Waiting, error) {
	q.after = after
	return q.queue.Waiting, q.broken
}

func (q fakeQueue) WaitingByProject(context.Context, eventstore.Position, int) (map[uuid.UUID]int, error) {
	return maps.Clone(q.of), q.broken
}

func (q fakeQueue) Leased(context.Context, time.Time) (bool, error) { return q.leased, q.broken }

// since sets how long the backlog has waited.
func (q *queue) since(age time.Duration) {
	q.Item = q.ownersFixture.pressureFixture.clock.Add(-age)
	q.Backlogged = q.Item
}

// wants checks which organizations may write. A deletion is always accepted, since nothing is
// derived from it.
func (q *queue) wants(t *testing.T, when string, taken ...uuid.UUID) {
	t.Helper()
	q.check(t.Context())
	for _, organization := range []uuid.UUID{acme, globe, initech} {
		want, by := slices.Contains(taken, organization), auth.Principal{OrganizationID: organization}
		if err := q.refuse(by, false); (err == nil) != want {
			t.Errorf("%s: organization %d is answered with %v, want taken %t", when, 1+indexOf(organization), err, want)
		}
		if err := q.refuse(by, true); err != nil {
			t.Errorf("%s: a deletion is answered with %v", when, err)
		}
	}
}

func TestBackpressure_MoreIsSentThanCanBeDerived(t *testing.T) {
	q := newQueueFixture(t)
	q.of[acme], q.of[globe] = 10, 2
	q.since(ownWaitLimit)
	q.wants(t, "a ownersFixture for a moment", acme, globe, initech)
	q.since(ownWaitLimit + time.Millisecond)
	q.wants(t, "a ownersFixture", globe, initech)
	q.of[acme], q.of[globe] = 1, 2
	q.since(ownWaitLimit + time.Second)
	q.wants(t, "the ownersFixture of another one, too", initech)
	q.since(ownWaitLimit/2 + time.Millisecond)
	q.wants(t, "not yet half", initech)
	q.since(ownWaitLimit / 2)
	q.wants(t, "half", acme, globe, initech)

	q.since(waitLimit + time.Millisecond)
	q.wants(t, "a ownersFixture for long")
	if reasons := strings.Join(q.reasons(), "; "); !strings.Contains(reasons, "more is sent than can be derived") {
		t.Errorf("reasons for the operator: %q", reasons)
	}
	if q.age() != waitLimit+time.Millisecond || q.openTooLong() != "" {
		t.Errorf("age %v, %q", q.age(), q.openTooLong())
	}
	q.since(waitLimit/2 + time.Millisecond)
	q.wants(t, "for long still")
	q.since(time.Second)
	q.wants(t, "caught up", acme, globe, initech)
	q.Waiting = datapoints.Waiting{}
	q.wants(t, "nothing waits", acme, globe, initech)
	if q.age() != 0 {
		t.Errorf("age %v of nothing", q.age())
	}
}

// A few items that cannot be derived cause no refusal. /readyz names them.
func TestBackpressure_OldItems(t *testing.T) {
	for name, change := range map[string]func(*queue){
		"no ownersFixture":       func(q *queue) { q.Backlogged = time.Time{} },
		"derivation is off":      func(q *queue) { q.derives.Store(false) },
		"only the index is late": func(q *queue) { q.Captured, q.Item, q.Backlogged = q.Item, time.Time{}, time.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueueFixture(t)
			q.of[acme] = 1
			q.since(time.Hour)
			change(q)
			q.wants(t, name, acme, globe, initech)
			if !strings.Contains(q.openTooLong(), "1h0m0s ago") {
				t.Errorf("named as %q", q.openTooLong())
			}
		})
	}
	q := newQueueFixture(t)
	q.derives.Store(false)
	q.slowExtractor = true
	if err := q.begin(t.Context()); err != nil || q.derives.Load() {
		t.Errorf("what a model takes counts: %v", err)
	}
}

func TestBackpressure_ItemsBeforeDerivationBegan(t *testing.T) {
	q := newQueueFixture(t)
	q.derives.Store(false)
	q.headNow = 70
	if err := q.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	q.headNow = 90
	if err := q.begin(t.Context()); err != nil { // again, as after a panic of the worker
		t.Fatal(err)
	}
	q.check(t.Context())
	if q.after != 70 {
		t.Errorf("asked from %d on", q.after)
	}
	if got := slices.Collect(maps.Keys(q.state().ahead)); len(got) != 0 {
		t.Errorf("refused %v", got)
	}
}

// While other processes derive, their backlog refuses writes. A pause of theirs refuses nobody, and what was
// sent meanwhile does not count.
func TestBackpressure_DerivationElsewhere(t *testing.T) {
	q := newQueueFixture(t)
	q.derives.Store(false)
	q.deriveElsewhere = true
	q.since(waitLimit + time.Second)
	q.wants(t, "nobody has derived yet", acme, globe, initech)
	q.leased, q.headNow = true, 70
	q.wants(t, "another process derives")
	if q.after != 70 {
		t.Errorf("counts from %d on", q.after)
	}
	q.leased = false
	q.ownersFixture.pressureFixture.clock = q.ownersFixture.pressureFixture.clock.Add(elsewhereLimit)
	q.since(waitLimit + time.Second)
	q.wants(t, "no lease for a moment")
	q.ownersFixture.pressureFixture.clock = q.ownersFixture.pressureFixture.clock.Add(time.Second)
	q.since(waitLimit + time.Second)
	q.wants(t, "the others have stopped", acme, globe, initech)
	q.leased, q.headNow = true, 90
	q.wants(t, "they are back")
	if q.after != 90 {
		t.Errorf("counts from %d on", q.after)
	}
}
