package ratelimit_test

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/ratelimit"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// clock is the clock of one process, which tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// shared is two processes on one database.
type shared struct {
	t     *testing.T
	db    *pgxpool.Pool
	clock *clock
	both  [2]*ratelimit.Shared
}

func newShared(t *testing.T, limit int) *shared {
	t.Helper()
	s := &shared{t: t, db: pgtest.Database(t), clock: &clock{at: time.Now()}}
	for i := range s.both {
		s.both[i] = ratelimit.NewShared(s.db, limit, s.clock.now)
	}
	return s
}

// pass lets time pass for the processes and for the database.
func (s *shared) pass(d time.Duration) {
	s.t.Helper()
	s.clock.pass(d)
	if _, err := s.db.Exec(s.t.Context(), `update ops.webhook_leases set taken_at = taken_at - $1::interval`, d); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shared) call(process int, caller string) (allowed bool) {
	s.t.Helper()
	retry, ok, err := s.both[process].Allow(s.t.Context(), caller)
	if err != nil {
		s.t.Fatal(err)
	}
	if !ok && (retry <= 0 || retry > 61*time.Second) {
		s.t.Fatalf("refused for %v", retry)
	}
	return ok
}

// calls makes calls in turns, and returns how many were allowed.
func (s *shared) calls(n int, caller string) (allowed int) {
	s.t.Helper()
	for i := range n {
		if s.call(i%2, caller) {
			allowed++
		}
	}
	return allowed
}

func (s *shared) rows() (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(s.t.Context(), `select count(*) from ops.webhook_leases`).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func wantAbout(t *testing.T, what string, got, least, most int) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %d allowed, want %d to %d", what, got, least, most)
	}
}

func TestShared_TwoProcesses(t *testing.T) {
	t.Parallel()
	s := newShared(t, 600)
	wantAbout(t, "a flood", s.calls(2000, "a"), 570, 600)
	if n := s.rows(); n > 200 {
		t.Errorf("%d leases of 600 calls", n)
	}
	wantAbout(t, "another caller in the same minute", s.calls(100, "b"), 100, 100)
	s.pass(30 * time.Second)
	wantAbout(t, "half a minute later", s.calls(100, "a"), 0, 24)
	s.pass(31 * time.Second)
	wantAbout(t, "a minute later", s.calls(2000, "a"), 570-24, 600)
}

// In any minute at most the limit is allowed, whatever the rate.
func TestShared_AnyMinute(t *testing.T) {
	t.Parallel()
	s := newShared(t, 60)
	// The clock of the database goes on by itself, so that a call happens between two times.
	type span struct{ after, before time.Duration }
	var allowed []span
	began := time.Now()
	for at := time.Duration(0); at < 4*time.Minute; at += 250 * time.Millisecond {
		for process := range 2 {
			after := at + time.Since(began)
			if s.call(process, "a") {
				allowed = append(allowed, span{after, at + time.Since(began)})
			}
		}
		s.pass(250 * time.Millisecond)
	}
	for i, first := range allowed {
		n := 0
		for _, each := range allowed[i:] {
			if each.before < first.after+time.Minute {
				n++
			}
		}
		if n > 60 {
			t.Fatalf("%d allowed in the minute from %v", n, first.after)
		}
	}
	windows := 1 + int((4*time.Minute+time.Since(began))/(61*time.Second))
	wantAbout(t, "four minutes", len(allowed), 200, windows*60)
}

func TestShared_AtOnce(t *testing.T) {
	t.Parallel()
	s := newShared(t, 100)
	var mu sync.Mutex
	allowed := 0
	var group sync.WaitGroup
	for i := range 400 {
		group.Go(func() {
			_, ok, err := s.both[i%2].Allow(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			if ok {
				mu.Lock()
				defer mu.Unlock()
				allowed++
			}
		})
	}
	group.Wait()
	wantAbout(t, "at once", allowed, 76, 100)
}

// What a process does not use comes back, its own when it asks again, and that of a killed one after the
// window.
func TestShared_UnusedSlots(t *testing.T) {
	t.Parallel()
	s := newShared(t, 20)
	for range 5 { // leases of 1, 2 and 4
		s.call(0, "a")
	}
	s.pass(2 * time.Second)
	s.call(0, "a") // gives back 2
	left := 0
	for range 100 {
		if s.call(1, "a") {
			left++
		}
	}
	wantAbout(t, "the rest", left, 14, 14)
	s.pass(62 * time.Second)
	if !s.call(1, "b") || s.rows() > 1+14 {
		t.Errorf("%d rows are left", s.rows())
	}
	s.pass(3 * time.Minute)
	if !s.call(1, "b") || s.rows() != 1 {
		t.Errorf("%d rows are left of callers that call no more", s.rows())
	}
}

func TestShared_DatabaseAway(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s := ratelimit.NewShared(db, 10, nil)
	db.Close()
	if _, ok, err := s.Allow(t.Context(), "a"); ok || err == nil {
		t.Errorf("%v, %v", ok, err)
	}
}
