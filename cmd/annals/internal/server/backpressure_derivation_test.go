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
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// queue is a fake of the derivation queue.
type queue struct {
	*ownersFixture
	datapoints.Waiting
	of   map[uuid.UUID]int
	bulk map[uuid.UUID]datapoints.Bulk
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
	runtest.Must(t, q.begin(t.Context()))
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

func (q fakeQueue) BulkByProject(context.Context) (map[uuid.UUID]datapoints.Bulk, error) {
	return maps.Clone(q.bulk), q.broken
}

func (q fakeQueue) Leased(context.Context, time.Time) (bool, error) { return q.leased, q.broken }

// since sets how long the backlog has waited.
func (q *queue) since(age time.Duration) {
	q.Item = q.ownersFixture.pressureFixture.clock.Add(-age)
	q.Backlogged = q.Item
}

// wants checks which projects may make single sends. What derives nothing never waits.
func (q *queue) wants(t *testing.T, when string, taken ...uuid.UUID) {
	t.Helper()
	q.check(t.Context())
	for _, project := range []uuid.UUID{acme, globe, initech} {
		want := slices.Contains(taken, project)
		if why := q.why(project, admission.Live); (why == "") != want {
			t.Errorf("%s: project %d waits because %q, want taken %t", when, 1+indexOf(project), why, want)
		}
		for _, lane := range []admission.Lane{admission.NoRoom, admission.Settled, admission.Bulk} {
			if why := q.why(project, lane); why != "" {
				t.Errorf("%s: lane %q waits because %q", when, lane, why)
			}
		}
	}
}

func TestBackpressure_MoreIsSentThanCanBeDerived(t *testing.T) {
	q := newQueueFixture(t)
	q.of[acme], q.of[globe] = 10, 2
	q.since(ownWaitLimit)
	q.wants(t, "a backlog for a moment", acme, globe, initech)
	q.since(ownWaitLimit + time.Millisecond)
	q.wants(t, "a backlog", globe, initech)
	q.of[acme], q.of[globe] = 1, 2
	q.since(ownWaitLimit + time.Second)
	q.wants(t, "the backlog of another one, too", initech)
	q.since(ownWaitLimit/2 + time.Millisecond)
	q.wants(t, "not yet half", initech)
	q.since(ownWaitLimit / 2)
	q.wants(t, "half", acme, globe, initech)

	q.of[acme], q.of[globe] = 4*minBacklog, minBacklog
	q.since(waitLimit + time.Millisecond)
	q.wants(t, "most of what is old is of a project that waits", globe, initech)
	q.of[globe]++
	q.wants(t, "a backlog for long")
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
		"no backlog":             func(q *queue) { q.Backlogged = time.Time{} },
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
	runtest.Must(t, q.begin(t.Context()))
	q.headNow = 90
	if err := q.begin(t.Context()); err != nil { // again, as after a panic of the worker
		t.Fatal(err)
	}
	q.check(t.Context())
	if q.after != 70 {
		t.Errorf("asked from %d on", q.after)
	}
	if got := q.state().held(projectsBehind); len(got) != 0 {
		t.Errorf("refused %v", got)
	}
}

// While other processes derive, their backlog refuses writes. A pause of theirs refuses nobody, and what was
// sent meanwhile does not count.
func TestBackpressure_DerivationElsewhere(t *testing.T) {
	q := newQueueFixture(t)
	q.derives.Store(false)
	q.deriveElsewhere, q.of[uuid.New()], q.of[uuid.New()] = true, minBacklog+1, minBacklog+1
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

// The project with the most waits, in the organization with the most. Its neighbours in the organization do not.
func TestBackpressure_DerivationOfProjects(t *testing.T) {
	q := newQueueFixture(t)
	q.owned[acme], q.owned[globe] = initech, initech
	q.of[acme], q.of[globe], q.of[uuid.New()] = 300, 200, 400
	q.since(ownWaitLimit + time.Millisecond)
	q.wants(t, "two projects of an organization have more than another one", globe, initech)
}

// Batches wait while the backlog of all of them is full, and those of a project with half of it while another one has
// some.
func TestBackpressure_BacklogOfBatches(t *testing.T) {
	q := newQueueFixture(t)
	for _, c := range []struct {
		name        string
		acme, globe datapoints.Bulk
		taken       []uuid.UUID
	}{
		{"alone", datapoints.Bulk{Items: 999}, datapoints.Bulk{}, []uuid.UUID{acme, globe}},
		{"half, with another", datapoints.Bulk{Items: 500}, datapoints.Bulk{Items: 1}, []uuid.UUID{globe}},
		{"half of the bytes", datapoints.Bulk{Items: 1}, datapoints.Bulk{Items: 1, Bytes: 1 << 19}, []uuid.UUID{acme}},
		{"full", datapoints.Bulk{Items: 999}, datapoints.Bulk{Items: 1}, nil},
		{"full of bytes", datapoints.Bulk{Items: 1, Bytes: 1 << 20}, datapoints.Bulk{}, nil},
	} {
		q.bulk = map[uuid.UUID]datapoints.Bulk{acme: c.acme}
		if c.globe.Items > 0 {
			q.bulk[globe] = c.globe
		}
		q.check(t.Context())
		for _, project := range []uuid.UUID{acme, globe} {
			if why := q.why(project, admission.Bulk); (why == "") != slices.Contains(c.taken, project) {
				t.Errorf("%s: batches of project %d wait because %q", c.name, 1+indexOf(project), why)
			}
			for _, lane := range []admission.Lane{admission.Live, admission.Settled, admission.NoRoom} {
				if why := q.why(project, lane); why != "" {
					t.Errorf("%s: lane %q waits because %q", c.name, lane, why)
				}
			}
		}
	}
}
