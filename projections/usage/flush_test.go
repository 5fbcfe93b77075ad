package usage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/usage"
)

func TestARecallCountsAtOnceAndOnce(t *testing.T) {
	s := newTill(t)
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
	s.flush() // who was seen stays for a round
	if s.left() != 0 {
		t.Errorf("%d rows are left", s.left())
	}
	s.recall("ana", noon.Add(time.Second)) // a clock that is behind
	want("counted on", 4)
	s.flush()
	s.flush()
	want("flushed on", 4)
	list := s.charged("2026-11")
	if len(list) != 2 || list[0].Recalls != 3 || list[1].Recalls != 1 || list[0].OrganizationID != s.caller.OrganizationID || !list[0].At.Equal(noon) {
		t.Errorf("the log says %+v", list)
	}
	wantSeen := map[uuid.UUID]time.Time{s.identity("ana"): noon.Add(2 * time.Second), s.identity("bo"): noon.Add(time.Second)}
	if diff := cmp.Diff(wantSeen, s.seen("2026-11")); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
	if got := s.used("2026-10"); got != (usage.Used{}) {
		t.Errorf("another month has %+v", got)
	}
}

func TestARecallCountsInTheMonthOfItsRequest(t *testing.T) {
	s := newTill(t)
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
		t.Error("a month has no event of its own")
	}
}

// Two processes that flush the same sum append it once.
func TestASumThatTwoProcessesAppend(t *testing.T) {
	s := newTill(t)
	s.recall("ana", noon)
	c := &crash{at: 2, after: true} // taken and begun
	if err := s.process(c).Flush(t.Context()); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	s.age()
	ended := make(chan error)
	for range 2 {
		go func() { ended <- s.process(&crash{}).Flush(t.Context()) }()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	s.flush()
	if list := s.charged("2026-11"); len(list) != 1 || s.used("2026-11").Recalls != 1 || s.left() != 0 {
		t.Errorf("the log says %+v, and %d rows are left", list, s.left())
	}
}

func TestManyIdentitiesTakeSeveralEvents(t *testing.T) {
	s := newTill(t)
	s.recall("ana", noon)
	const many = 4500
	if _, err := s.db.Exec(t.Context(), `insert into ops.seen (project_id, identity_id, flush_id, organization_id, at)
		select $1, gen_random_uuid(), $2, $3, $4 from generate_series(1, $5)`, s.caller.Project.ID, uuid.Nil, s.caller.OrganizationID, noon, many); err != nil {
		t.Fatal(err)
	}
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

// The projection remembers the newest flushes of a stream only; a sum that is older, and that nobody dropped, is found in the log.
func TestASumThatTheProjectionForgot(t *testing.T) {
	s := newTill(t)
	s.recall("ana", noon)
	c := &crash{at: 3, after: true} // taken, begun and appended
	if err := s.process(c).Flush(t.Context()); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if err := s.project(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(t.Context(), `delete from usage.flushes`); err != nil {
		t.Fatal(err)
	}
	s.age()
	s.flush()
	s.flush()
	if list := s.charged("2026-11"); len(list) != 1 || s.used("2026-11").Recalls != 1 || s.left() != 0 {
		t.Errorf("the log says %+v, and %d rows are left", list, s.left())
	}
}
