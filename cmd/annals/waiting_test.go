package main

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
	*crowd
	datapoints.Waiting
	of map[uuid.UUID]int
	// behind is the position of the last call.
	behind eventstore.Position
}

func newQueue(t *testing.T) *queue {
	t.Helper()
	q := &queue{crowd: newCrowd(), of: map[uuid.UUID]int{}}
	q.pressure.clock = func() time.Time { return q.crowd.scales.clock }
	q.waits = q.asked()
	if err := q.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	return q
}

type askedQueue struct{ *queue }

func (q *queue) asked() waits { return askedQueue{q} }

func (q askedQueue) Waiting(_ context.Context, behind eventstore.Position, _ int) (datapoints.Waiting, error) {
	q.behind = behind
	return q.queue.Waiting, q.broken
}

func (q askedQueue) WaitingOf(context.Context, eventstore.Position, int) (map[uuid.UUID]int, error) {
	return maps.Clone(q.of), q.broken
}

// since makes a crowd wait for so long.
func (q *queue) since(age time.Duration) {
	q.Item = q.crowd.scales.clock.Add(-age)
	q.Crowd = q.Item
}

// wants checks which organizations may write. A deletion is always accepted, since nothing is
// derived from it.
func (q *queue) wants(t *testing.T, when string, taken ...uuid.UUID) {
	t.Helper()
	q.look(t.Context())
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

func TestPressure_MoreIsSentThanCanBeDerived(t *testing.T) {
	q := newQueue(t)
	q.of[acme], q.of[globe] = 10, 2
	q.since(ownWaitingFor)
	q.wants(t, "a crowd for a moment", acme, globe, initech)
	q.since(ownWaitingFor + time.Millisecond)
	q.wants(t, "a crowd", globe, initech)
	q.of[acme], q.of[globe] = 1, 2
	q.since(ownWaitingFor + time.Second)
	q.wants(t, "the crowd of another one, too", initech)
	q.since(ownWaitingFor/2 + time.Millisecond)
	q.wants(t, "not yet half", initech)
	q.since(ownWaitingFor / 2)
	q.wants(t, "half", acme, globe, initech)

	q.since(waitingFor + time.Millisecond)
	q.wants(t, "a crowd for long")
	if reasons := strings.Join(q.reasons(), "; "); !strings.Contains(reasons, "more is sent than can be derived") {
		t.Errorf("the operator is told %q", reasons)
	}
	if q.age() != waitingFor+time.Millisecond || q.openTooLong() != "" {
		t.Errorf("age %v, %q", q.age(), q.openTooLong())
	}
	q.since(waitingFor/2 + time.Millisecond)
	q.wants(t, "for long still")
	q.since(time.Second)
	q.wants(t, "caught up", acme, globe, initech)
	q.Waiting = datapoints.Waiting{}
	q.wants(t, "nothing waits", acme, globe, initech)
	if q.age() != 0 {
		t.Errorf("age %v of nothing", q.age())
	}
}

// Items that wait for a reason of their own cause no refusal, but are named.
func TestPressure_OldItemsRefuseNobody(t *testing.T) {
	for name, change := range map[string]func(*queue){
		"no crowd":               func(q *queue) { q.Crowd = time.Time{} },
		"derivation is off":      func(q *queue) { q.derives.Store(false) },
		"only the index is late": func(q *queue) { q.Captured, q.Item, q.Crowd = q.Item, time.Time{}, time.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t)
			q.of[acme] = 1
			q.since(time.Hour)
			change(q)
			q.wants(t, name, acme, globe, initech)
			if !strings.Contains(q.openTooLong(), "1h0m0s ago") {
				t.Errorf("named as %q", q.openTooLong())
			}
		})
	}
	q := newQueue(t)
	q.derives.Store(false)
	q.model = true
	if err := q.begin(t.Context()); err != nil || q.derives.Load() {
		t.Errorf("what a model takes counts: %v", err)
	}
}

func TestPressure_CountsWhatIsAcceptedSinceDerivationBegan(t *testing.T) {
	q := newQueue(t)
	q.derives.Store(false)
	q.headNow = 70
	if err := q.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	q.headNow = 90
	if err := q.begin(t.Context()); err != nil { // again, as after a panic of the worker
		t.Fatal(err)
	}
	q.look(t.Context())
	if q.behind != 70 {
		t.Errorf("asked from %d on", q.behind)
	}
	if got := slices.Collect(maps.Keys(q.found().own)); len(got) != 0 {
		t.Errorf("refused %v", got)
	}
}
