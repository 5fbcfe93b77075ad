package limiter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

func TestFlush_RecallCountsAtOnceAndOnce(t *testing.T) {
	s := newFixture(t)
	want := func(when string, recalls int64) {
		t.Helper()
		if got := s.used("2026-11"); got.Recalls != recalls || got.CreditTenths != 0 {
			t.Errorf("%s: %+v, want %d recalls", when, got, recalls)
		}
	}
	want("nothing", 0)
	s.recall("ana", noon)
	s.recall("ana", noon.Add(2*time.Second))
	s.recall("bo", noon.Add(time.Second))
	want("counted", 3)
	s.flush()
	want("flushed", 3)
	s.flush() // the seen identities stay for one flush
	if s.left() != 0 {
		t.Errorf("%d rows are left", s.left())
	}
	s.recall("ana", noon.Add(time.Second)) // a clock that is late
	want("counted on", 4)
	s.flush()
	s.flush()
	want("flushed on", 4)
	list := s.charged("2026-11")
	if len(list) != 2 || list[0].Recalls != 3 || list[1].Recalls != 1 ||
		list[0].OrganizationID != s.caller.OrganizationID ||
		!list[0].At.Equal(noon) {
		t.Errorf("the log has %+v", list)
	}
	wantSeen := map[uuid.UUID]time.Time{
		s.identity("ana"): noon.Add(2 * time.Second),
		s.identity("bo"):  noon.Add(time.Second),
	}
	if diff := cmp.Diff(wantSeen, s.seen("2026-11")); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
	if got := s.used("2026-10"); got != (usage.Used{}) {
		t.Errorf("another month has %+v", got)
	}
}

func TestFlush_RecallCountsInTheMonthOfItsRequest(t *testing.T) {
	s := newFixture(t)
	turn := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	s.recall("ana", turn.Add(-time.Microsecond))
	s.recall("ana", turn)
	s.recall("bo", turn.In(time.FixedZone("", -3600)))
	for range 2 {
		if november, december := s.used("2026-11").Recalls, s.used("2026-12").Recalls; november != 1 || december != 2 {
			t.Errorf("November has %d, December %d", november, december)
		}
		s.flush()
	}
	if len(s.charged("2026-11")) != 1 || len(s.charged("2026-12")) != 1 {
		t.Error("a month has no separate event")
	}
}

// together hands an abandoned sum to two processes before either appends it.
type together struct {
	limiter.PendingCharges
	fixture *fixture
	one     *sync.Mutex // held during Take
	taken   *sync.WaitGroup
}

func (c *together) Take(ctx context.Context, due work.Due) ([]work.Charge, bool, error) {
	c.one.Lock()
	open, more, err := c.PendingCharges.Take(ctx, due)
	if len(open) != 1 {
		c.fixture.t.Errorf("a process took %+v", open)
	}
	c.fixture.age()
	c.one.Unlock()
	c.taken.Done()
	c.taken.Wait()
	return open, more, err
}

// Two processes that flush the same sum append it once.
func TestFlush_SumAppendedByTwoProcesses(t *testing.T) {
	s := newFixture(t)
	s.recall("ana", noon)
	c := &crash{at: 3, after: true} // taken and begun
	if err := s.process(c).Flush(t.Context()); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	s.age()
	var taken sync.WaitGroup
	taken.Add(2)
	ended := make(chan error)
	var one sync.Mutex
	for range 2 {
		go func() {
			p := s.process(&crash{})
			p.Pending = &together{s.pending, s, &one, &taken}
			ended <- p.Flush(t.Context())
		}()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	s.flush()
	if list := s.charged("2026-11"); len(list) != 1 || s.used("2026-11").Recalls != 1 || s.left() != 0 {
		t.Errorf("the log has %+v, and %d rows are left", list, s.left())
	}
}

func TestFlush_ManyIdentities(t *testing.T) {
	s := newFixture(t)
	s.recall("ana", noon)
	const many = 4500
	s.exec(`insert into ops.seen (project_id, identity_id, flush_id, organization_id, at)
		select $1, gen_random_uuid(), $2, $3, $4 from generate_series(1, $5)`,
		s.caller.Project.ID, uuid.Nil, s.caller.OrganizationID, noon, many)
	s.flush()
	s.flush()
	var seen, recalls int
	list := s.charged("2026-11")
	for _, e := range list {
		seen, recalls = seen+len(e.Seen), recalls+int(e.Recalls)
	}
	if len(list) != 3 || seen != many+1 || recalls != 1 || s.left() != 0 {
		t.Errorf("%d events, %d seen, %d recalls, and %d rows left", len(list), seen, recalls, s.left())
	}
}

// The projection remembers only the newest flushes of a stream. An older sum that was not dropped
// is found in the log.
func TestFlush_SumMissingFromProjection(t *testing.T) {
	s := newFixture(t)
	s.recall("ana", noon)
	c := &crash{at: 3, after: true} // taken, begun and appended
	if err := s.process(c).Flush(t.Context()); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	runtest.Must(t, s.project(t.Context()))
	s.exec(`delete from usage.flushes`)
	s.age()
	s.flush()
	s.flush()
	if list := s.charged("2026-11"); len(list) != 1 || s.used("2026-11").Recalls != 1 || s.left() != 0 {
		t.Errorf("the log has %+v, and %d rows are left", list, s.left())
	}
}

// pass makes the counted rows older.
func (s *fixture) pass(d time.Duration) {
	s.t.Helper()
	for _, table := range []string{"charges", "seen"} {
		older := `update ops.` + table + ` set since = since - make_interval(secs => $1)`
		s.exec(older, d.Seconds())
	}
}

// take returns the charges that a process gets to append.
func (s *fixture) take(due work.Due) []work.Charge {
	s.t.Helper()
	open, _, err := s.pending.Take(s.t.Context(), due)
	runtest.Must(s.t, err)
	return open
}

// Sums are appended after 5 to 15 minutes and identities after an hour; reads include both before.
func TestFlush_DueTimes(t *testing.T) {
	s := newFixture(t)
	due := work.Due{Sum: 10 * time.Minute, Seen: time.Hour}
	look := func(when string, sums, seen int) {
		t.Helper()
		open := s.take(due)
		named := 0
		for _, c := range open {
			named += len(c.Seen)
		}
		if len(open) != sums || named != seen {
			t.Errorf("%s: %d sums and %d identities, want %d and %d", when, len(open), named, sums, seen)
		}
		if used := s.used("2026-11").Recalls; used != 2 {
			t.Errorf("%s: %d recalls are counted", when, used)
		}
	}
	s.recall("ana", noon)
	s.recall("bo", noon)
	look("at once", 0, 0)
	s.pass(4 * time.Minute)
	look("after four minutes", 0, 0)
	s.pass(12 * time.Minute)
	look("after sixteen minutes", 1, 0)
	s.pass(50 * time.Minute)
	look("after an hour, during a flush", 0, 0)
	s.exec(`delete from ops.charges`)
	s.recall("bo", noon) // two recalls in total: the deleted charge plays the part of the log
	s.recall("bo", noon.Add(time.Minute))
	look("after an hour, without a due sum", 0, 0)
	s.pass(11 * time.Minute)
	look("after an hour and a quarter", 1, 2)
	if pending := s.seen("2026-11"); len(pending) != 2 {
		t.Errorf("seen is %v", pending)
	}
}

// An identity is appended after an hour even if its project has no sum by then.
func TestFlush_IdentitiesWithoutSum(t *testing.T) {
	s := newFixture(t)
	due := work.Due{Sum: 10 * time.Minute, Seen: time.Hour}
	s.recall("ana", noon)
	s.pass(16 * time.Minute)
	if open := s.take(due); len(open) != 1 || len(open[0].Seen) != 0 {
		t.Fatalf("%+v", open)
	}
	s.exec(`delete from ops.charges`)
	s.pass(50 * time.Minute)
	if open := s.take(due); len(open) != 0 {
		t.Errorf("it did not wait for a sum: %+v", open)
	}
	s.pass(10 * time.Minute)
	open := s.take(due)
	if len(open) != 1 || open[0].Recalls != 0 || len(open[0].Seen) != 1 || open[0].Month != "2026-11" ||
		open[0].OrganizationID != s.caller.OrganizationID {
		t.Errorf("alone it takes %+v", open)
	}
	if again := s.take(due); len(again) != 0 {
		t.Errorf("it is taken twice: %+v", again)
	}
}

// While the log accepts no appends, a project has at most one flush in progress. Abandoned
// flushes are handed out one part at a time.
func TestFlush_OverlappingCalls(t *testing.T) {
	s := newFixture(t)
	due := work.Due{Sum: 10 * time.Minute, Seen: time.Hour}
	for range 5 {
		s.recall("ana", noon)
		s.pass(16 * time.Minute)
		s.take(due)
	}
	var flushes int
	row := s.db.QueryRow(t.Context(), `select count(*) from ops.charges where flush_id <> $1`, uuid.Nil)
	if err := row.Scan(&flushes); err != nil || flushes != 1 {
		t.Errorf("%d flushes are on their way, %v", flushes, err)
	}
	const many = 100
	s.exec(`insert into ops.charges
			(project_id, month, flush_id, organization_id, recalls, recall_tenths, taken)
		select gen_random_uuid(), '2026-11', gen_random_uuid(), $1, 1, 0, now() from generate_series(1, $2)`,
		s.caller.OrganizationID, many)
	s.age()
	found := map[uuid.UUID]bool{}
	for more := true; more; {
		var open []work.Charge
		var err error
		if open, more, err = s.pending.Take(t.Context(), due); err != nil {
			t.Fatal(err)
		}
		if len(open) > 65 {
			t.Errorf("one part has %d", len(open))
		}
		for _, c := range open {
			found[c.FlushID] = true
		}
	}
	if len(found) != many+1 {
		t.Errorf("%d of %d were given out", len(found), many+1)
	}
}

// A flush appends everything, also more than one part.
func TestFlush_MoreProjectsThanOnePart(t *testing.T) {
	s := newFixture(t)
	const many = 700
	s.exec(`insert into ops.charges
			(project_id, month, flush_id, organization_id, recalls, recall_tenths)
		select gen_random_uuid(), '2026-11', $1, $2, 1, 0 from generate_series(1, $3)`,
		uuid.Nil, s.caller.OrganizationID, many)
	s.flush()
	var left, sum int
	row := s.db.QueryRow(t.Context(),
		`select (select count(*) from ops.charges), (select sum(recalls) from usage.charges)`)
	runtest.Must(t, row.Scan(&left, &sum))
	if left != 0 || sum != many {
		t.Errorf("%d are left, and %d in the log", left, sum)
	}
}

func TestFlush_AgeOfOldestSum(t *testing.T) {
	s := newFixture(t)
	look := func(when string, ok bool, least, most time.Duration) {
		t.Helper()
		age, is, err := s.pending.Oldest(t.Context())
		if err != nil || is != ok || age < least || age > most {
			t.Errorf("%s: %s, %v, %v", when, age, is, err)
		}
	}
	look("nothing", false, 0, 0)
	s.recall("ana", noon)
	look("just counted", true, 0, 5*time.Minute)
	s.pass(time.Hour)
	s.take(work.Due{}) // a flush in progress is not in the log yet
	look("on its way", true, time.Hour, time.Hour+5*time.Minute)
	s.age()
	s.flush()
	look("in the log", false, 0, 0)
}
