package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/runner"
)

// pressureFixture is backpressure whose disk, log and clock the test sets.
type pressureFixture struct {
	*backpressure
	clock   time.Time
	freeNow uint64
	broken  error
	headNow eventstore.Position
	// stoppedBy is why the log accepts no more writes.
	stoppedBy error
	position  eventstore.Position
	space     node.Space
	log       *bytes.Buffer
}

func newPressureFixture() *pressureFixture {
	s := &pressureFixture{clock: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), freeNow: 1 << 40, log: &bytes.Buffer{}}
	s.backpressure = newBackpressure(pressureSources{
		minFree: 1000, bulkItems: 1000, bulkBytes: 1 << 20, logger: slog.New(slog.NewTextHandler(s.log, nil)),
		logSpace: func() node.Space { return s.space },
		free:     func() (uint64, error) { return s.freeNow, s.broken },
		stopped:  func() error { return s.stoppedBy },
		head:     func(context.Context) (eventstore.Position, error) { return s.headNow, s.broken },
		countAfter: func(_ context.Context, after eventstore.Position, limit int) (int, error) {
			return min(int(s.headNow-after), limit), s.broken
		},
		health: func(context.Context) []runner.Status {
			return []runner.Status{{Name: "datapoints", Position: s.position}}
		},
		now: func() time.Time { return s.clock },
	})
	return s
}

// reasons returns why writes are refused, for the operator.
func (p *backpressure) reasons() []string { return p.conditions().Remarks(true).WritesRefused }

func (s *pressureFixture) want(t testing.TB, when string, sends, deletions bool) {
	t.Helper()
	s.check(t.Context())
	for lane, taken := range map[admission.Lane]bool{
		admission.Live: sends, admission.Bulk: sends, admission.Settled: sends, admission.NoRoom: deletions,
	} {
		err := s.refuse(lane)
		if (err == nil) != taken {
			t.Errorf("%s: lane %q is answered with %v", when, lane, err)
		}
		if refused, ok := errors.AsType[*fault.Error](err); err != nil && (!ok ||
			refused.Code != fault.CodeServiceUnavailable || refused.Kind != fault.Unavailable) {
			t.Errorf("%s: refused with %v", when, err)
		}
	}
	if taken := len(s.reasons()) == 0; taken != sends {
		t.Errorf("%s: reasons for the operator: %q", when, strings.Join(s.reasons(), "; "))
	}
}

func TestBackpressure_DiskNearlyFull(t *testing.T) {
	s := newPressureFixture()
	for _, step := range []struct {
		free             uint64
		sends, deletions bool
	}{
		{1000, true, true},
		{999, false, true},
		{1249, false, true},
		{1250, true, true},
		{1000, true, true},
		{999, false, true},
		{120, false, true},
		{119, false, false},
		{149, false, false},
		{150, false, true},
		{1250, true, true},
	} {
		s.freeNow = step.free
		s.want(t, "free", step.sends, step.deletions)
	}
	s.freeNow = 10
	s.want(t, "full", false, false)
	s.broken = errors.New("the disk does not answer")
	s.freeNow = 1 << 40
	s.want(t, "as it was while nothing can be found out", false, false)
	s.broken = nil
	s.minFree, s.freeNow = 0, 0
	s.want(t, "switched off", true, true)
}

// A log whose disk is full refuses all writes, also without a check of the disk, with its numbers in the reason.
func TestBackpressure_LogFull(t *testing.T) {
	s := newPressureFixture()
	s.minFree = 0
	s.space = node.Space{Free: 40 << 20, Reserve: 128 << 20, Full: true}
	s.want(t, "full", false, false)
	if err := s.refuse(admission.Live); err == nil || !strings.Contains(err.Error(), "the disk of the event store is full") {
		t.Errorf("refused with %v", err)
	}
	want := "the disk of the event store is full: 40 MiB are free on the disk of ANNALS_DATA_DIR, the log leaves 128 MiB free"
	if got := s.reasons(); len(got) != 1 || got[0] != want ||
		!s.conditions().Has(condition.WritesRefused, string(logRefused)) {
		t.Errorf("operators read %q", got)
	}
	s.space = node.Space{Free: 1 << 30, Reserve: 128 << 20, Full: true}
	s.check(t.Context())
	if got := s.reasons(); len(got) != 1 || !strings.Contains(got[0], "file descriptor") {
		t.Errorf("without a descriptor operators read %q", got)
	}
	s.space.Full = false
	s.want(t, "with space again", true, true)
}

// Each cause is logged in words when it begins and when it ends, and not in between.
func TestBackpressure_LogsChangesInWords(t *testing.T) {
	s := newPressureFixture()
	s.minFree, s.freeNow = 1024<<20, 300<<20
	for range 10 {
		s.check(t.Context())
		s.freeNow -= 1 << 20
	}
	want := []string{
		`level=WARN msg="writes are refused" why=disk`,
		"300 MiB are free, 1024 MiB must be (ANNALS_MIN_FREE_DISK is 1024)",
	}
	for _, part := range want {
		if strings.Count(s.log.String(), part) != 1 {
			t.Errorf("want once %q:\n%s", part, s.log)
		}
	}
	s.freeNow = 1 << 40
	s.check(t.Context())
	if got := s.log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `level=INFO msg="writes are accepted again" why=disk`) {
		t.Errorf("logged:\n%s", got)
	}
}

func TestBackpressure_ProjectionLagsFar(t *testing.T) {
	s := newPressureFixture()
	s.headNow, s.position = 5000, 5000
	s.want(t, "at the head", true, true)
	s.headNow = 20000
	s.want(t, "much to do for a moment", true, true)
	s.clock = s.clock.Add(lagTime - time.Millisecond)
	s.want(t, "not yet for long", true, true)
	s.clock = s.clock.Add(time.Millisecond)
	s.want(t, "for long", false, true)
	s.position = 20000 - lagEvents/2 - 1
	s.want(t, "nearly caught up", false, true)
	s.position++
	s.want(t, "caught up", true, true)
	s.position = 20000
	s.want(t, "at the head again", true, true)
	s.headNow += lagEvents
	s.clock = s.clock.Add(time.Second)
	s.want(t, "few events", true, true)
	s.clock = s.clock.Add(time.Hour)
	s.want(t, "few events for long", true, true)
	s.headNow++
	s.want(t, "one more", false, true)
}

// A projection that keeps up never lags far, because it has applied by now what it had not
// applied a while ago.
func TestBackpressure_ProjectionAlwaysALittleLate(t *testing.T) {
	s := newPressureFixture()
	for range 200 {
		s.clock = s.clock.Add(time.Second)
		s.position, s.headNow = s.headNow, s.headNow+5000
		s.want(t, "a second late", true, true)
	}
}

func TestBackpressure_LogStopped(t *testing.T) {
	s := newPressureFixture()
	s.want(t, "while it writes", true, true)
	s.stoppedBy = errors.New("input/output error")
	s.want(t, "once it cannot", false, false)
	if err := s.refuse(admission.Live); !strings.Contains(err.Error(), "restarted") ||
		strings.Contains(err.Error(), "input/output") {
		t.Errorf("error for the caller: %v", err)
	}
	if got := s.reasons(); len(got) != 1 || !strings.Contains(got[0], "input/output error") {
		t.Errorf("reasons for the operator: %q", got)
	}
}

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
