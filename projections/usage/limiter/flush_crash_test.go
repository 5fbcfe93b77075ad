package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

var errCrash = errors.New("the process was killed")

// crash kills a process before or after one of its steps. The steps after that have no effect.
type crash struct {
	mu    sync.Mutex
	steps int
	at    int
	after bool
}

func (c *crash) step(do func() error) error {
	c.mu.Lock()
	c.steps++
	step := c.steps
	c.mu.Unlock()
	if c.at > 0 && (step > c.at || step == c.at && !c.after) {
		return errCrash
	}
	err := do()
	if step == c.at && err == nil {
		return errCrash
	}
	return err
}

// process appends the counts to the log, and may crash.
func (s *fixture) process(c *crash) *tenancy.Metering {
	log := slog.New(slog.DiscardHandler)
	return &tenancy.Metering{
		Journal: engine.NewJournal(&crashingStore{s.store, c}, s.codec, log),
		Pending: &crashingCount{
			s.pending,
			c,
		}, Waiter: &crashingWaiter{s, c}, Logger: log, Now: func() time.Time { return noon },
	}
}

type crashingStore struct {
	*eventstoretest.Memory
	crash *crash
}

func (s *crashingStore) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (done eventstore.Appended, err error) {
	err = s.crash.step(func() (err error) {
		done, err = s.Memory.Append(ctx, name, expected, events)
		return err
	})
	return done, err
}

type crashingCount struct {
	limiter.PendingCharges
	crash *crash
}

func (c *crashingCount) Take(ctx context.Context, due work.Due) (open []work.Charge, more bool, err error) {
	err = c.crash.step(func() (err error) {
		open, more, err = c.PendingCharges.Take(ctx, due)
		return err
	})
	return open, more, err
}

func (c *crashingCount) Begin(
	ctx context.Context, flush uuid.UUID, last eventstore.Revision,
) (after eventstore.Revision, ok bool, err error) {
	err = c.crash.step(func() (err error) {
		after, ok, err = c.PendingCharges.Begin(ctx, flush, last)
		return err
	})
	return after, ok, err
}

func (c *crashingCount) DropCharges(ctx context.Context, known ...uuid.UUID) error {
	return c.crash.step(func() error { return c.PendingCharges.DropCharges(ctx, known...) })
}

func (c *crashingCount) DropSeen(ctx context.Context) error {
	return c.crash.step(func() error { return c.PendingCharges.DropSeen(ctx) })
}

// crashingWaiter makes the projection catch up on each wait.
type crashingWaiter struct {
	fixture *fixture
	crash   *crash
}

func (w *crashingWaiter) Wait(ctx context.Context, _ eventstore.Position, _ ...string) error {
	return w.crash.step(func() error { return w.fixture.project(ctx) })
}

// A process is killed at each step of a flush. At no moment is a count lost or counted twice, and
// the next process appends everything once.
func TestFlush_CrashAtEachStep(t *testing.T) {
	s := newFixture(t)
	for n := range 4 {
		after, applied := n%2 == 1, n/2 == 1
		for at := 1; ; at++ {
			t.Run(fmt.Sprintf("step %d, after %t, applied %t", at, after, applied), func(t *testing.T) {
				s.t = t
				s.newCaller()
				wantSeen := map[uuid.UUID]time.Time{s.identity("ana"): noon.Add(time.Second), s.identity("bo"): noon}
				want := func(when string, recalls, events int64) {
					t.Helper()
					s.wantUsed(when, usage.Used{Recalls: recalls, WebhookEvents: events, CreditTenths: events})
					if diff := cmp.Diff(wantSeen, s.seen("2026-11")); diff != "" {
						t.Errorf("%s there were seen (-want +got):\n%s", when, diff)
					}
				}
				s.recall("ana", noon.Add(time.Second))
				s.recall("bo", noon)
				s.receive(noon)
				c := &crash{at: at, after: after}
				if err := s.process(c).Flush(t.Context()); !errors.Is(err, errCrash) && c.steps >= at {
					t.Fatalf("it did not crash: %v", err)
				}
				want("at the crash", 2, 1)
				if applied {
					runtest.Must(t, s.project(t.Context()))
					want("once the log is applied", 2, 1)
				} else {
					s.age() // the next process finds the flush before its projection has applied it
				}
				// Another process counts more calls meanwhile, and appends them to the same stream.
				s.recall("cy", noon)
				s.receive(noon)
				s.receive(noon)
				wantSeen[s.identity("cy")] = noon
				want("counted on", 3, 3)
				s.flush()
				want("behind a flush of another", 3, 3)
				s.age()
				s.flush()
				want("in the end", 3, 3)
				s.flush()
				if s.left() != 0 {
					t.Errorf("%d rows are left", s.left())
				}
				var recalls, events, tenths int64
				flushes := map[uuid.UUID]bool{}
				for _, e := range s.charged("2026-11") {
					recalls, events, tenths = recalls+e.Recalls, events+e.WebhookEvents, tenths+e.WebhookTenths
					if flushes[e.FlushID] {
						t.Errorf("flush %s is in the log twice", e.FlushID)
					}
					flushes[e.FlushID] = true
				}
				if recalls != 3 || events != 3 || tenths != 3 {
					t.Errorf("the log counts %d recalls, and %d events for %d", recalls, events, tenths)
				}
				if c.steps < at {
					at = -1 // the flush ended before this step
				}
			})
			if at < 0 {
				break
			}
			if at > 50 {
				t.Fatal("a flush has no end")
			}
		}
	}
}
