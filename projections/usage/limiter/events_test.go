package limiter_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// receive is an event whose work succeeds.
func (s *fixture) receive(at time.Time) {
	s.t.Helper()
	runtest.Must(s.t, s.events.ChargeEvent(s.t.Context(), s.caller, at, func() error { return nil }))
}

// refusedEvent is an event that no work is done for, and returns its fault.
func (s *fixture) refusedEvent(code string) *fault.Error {
	s.t.Helper()
	err := s.events.ChargeEvent(s.t.Context(), s.caller, noon, func() error {
		s.t.Error("it worked")
		return nil
	})
	return wantFault(s.t, err, code)
}

func (s *fixture) wantUsed(when string, want usage.Used) {
	s.t.Helper()
	if got := s.used("2026-11"); got != want {
		s.t.Errorf("%s: used %+v, want %+v", when, got, want)
	}
}

// Every received event costs a tenth, on every plan and together with recalls, before and after its flush.
func TestEvent_CostsATenth(t *testing.T) {
	for _, plan := range []metering.Plan{"", metering.SelfHosted, metering.Flex, metering.Enterprise} {
		t.Run(string(plan), func(t *testing.T) {
			s := newFixture(t)
			if plan != "" {
				s.plan(plan, 100)
			}
			s.receive(noon)
			s.recall("ana", noon)
			s.wantUsed("counted", usage.Used{Recalls: 1, WebhookEvents: 1, CreditTenths: 1})
			s.flush()
			s.wantUsed("flushed", usage.Used{Recalls: 1, WebhookEvents: 1, CreditTenths: 1})
			s.receive(noon)
			s.flush()
			s.flush()
			s.wantUsed("flushed on", usage.Used{Recalls: 1, WebhookEvents: 2, CreditTenths: 2})
			if s.left() != 0 {
				t.Errorf("%d rows are left", s.left())
			}
			list := s.charged("2026-11")
			if len(list) != 2 || list[0].WebhookEvents != 1 || list[0].WebhookTenths != 1 || list[0].RecallTenths != 0 {
				t.Errorf("the log has %+v", list)
			}
			if s.used("2026-12") != (usage.Used{}) {
				t.Error("another month has some")
			}
		})
	}
}

func TestEvent_CountsInTheMonthOfItsReceipt(t *testing.T) {
	s := newFixture(t)
	turn := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	s.receive(turn.Add(-time.Microsecond))
	s.receive(turn)
	s.receive(turn.In(time.FixedZone("", -3600)))
	for range 2 {
		if november, december := s.used("2026-11").WebhookEvents, s.used("2026-12").WebhookEvents; november != 1 ||
			december != 2 {
			t.Errorf("November has %d, December %d", november, december)
		}
		s.flush()
	}
}

func TestEvent_CreditCap(t *testing.T) {
	s := newFixture(t)
	s.caller.Limits.CreditCapTenths = limit(2)
	s.receive(noon)
	s.flush()
	s.receive(noon)
	f := s.refusedEvent(fault.CodeProjectCapReached)
	if f.Kind != fault.LimitReached || f.Data["cap"] != "credit" || f.Data["limit"] != metering.Credits(2) ||
		f.Data["used"] != metering.Credits(2) || f.Data["resetsAt"] != metering.MonthEnd(noon) {
		t.Errorf("fault %+v", f)
	}
	s.wantUsed("at the cap", usage.Used{WebhookEvents: 2, CreditTenths: 2})
}

func TestEvent_SpendCap(t *testing.T) {
	s := newFixture(t)
	s.plan(metering.Flex, 1)
	s.caller.Limits.SpendCapTenths = limit(1)
	s.receive(noon)
	f := s.refusedEvent(fault.CodeSpendCapReached) // reported before the credits, which are spent too
	if f.Kind != fault.LimitReached || f.Data["cap"] != metering.Credits(1) || f.Data["spent"] != metering.Credits(1) ||
		f.Data["resetsAt"] != metering.MonthEnd(noon) {
		t.Errorf("fault %+v", f)
	}
}

func TestEvent_Balance(t *testing.T) {
	for name, allowance := range map[string]int64{"no allowance": 0, "an allowance": 1} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			terms := metering.DefaultPlanTerms()
			flex := terms[metering.Flex]
			flex.AllowanceTenths = allowance
			terms[metering.Flex] = flex
			s.events = limiter.NewEvents(s.limiter(terms, nil), discard)
			s.plan(metering.Flex, 2)
			for range 2 + allowance {
				s.receive(noon)
			}
			f := s.refusedEvent(fault.CodeOutOfCredits)
			if f.Kind != fault.PaymentRequired || f.Data["creditsLeft"] != metering.Credits(0) ||
				f.Data["creditsNeeded"] != metering.Credits(1) {
				t.Errorf("fault %+v", f)
			}
			switch day := f.Data["resetsOn"].(*string); {
			case (day != nil) != (allowance > 0):
				t.Errorf("resets on %v", day)
			case day != nil && *day != "2026-12-01":
				t.Errorf("resets on %s", *day)
			}
			s.queries.PlanTerms = terms
			b, err := s.queries.Balance(t.Context(), s.caller.OrganizationID, noon)
			if err != nil || b.LeftTenths() != 0 || b.SpentTenths != 2+allowance {
				t.Errorf("balance %+v, %v", b, err)
			}
		})
	}
}

// An event is no ingestion: a used up cap of them refuses what the event is ingested as, not its price.
func TestEvent_IngestionCap(t *testing.T) {
	for name, credits := range map[string]*int64{"alone": nil, "with a credit cap": limit(1)} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.exec(`insert into datapoints.month_usage (project_id, month, ingestions, credit_tenths)
				values ($1, '2026-11', 5, 0)`, s.caller.Project.ID)
			s.caller.Limits.IngestionCap, s.caller.Limits.CreditCapTenths = limit(3), credits
			s.receive(noon)
			s.wantUsed("received", usage.Used{Ingestions: 5, WebhookEvents: 1, CreditTenths: 1})
		})
	}
}

// An event whose work fails or panics costs nothing, whether or not limits bind.
func TestEvent_FailedWorkIsFree(t *testing.T) {
	for _, plan := range []metering.Plan{metering.SelfHosted, metering.Flex} {
		for _, flush := range []bool{false, true} {
			t.Run(string(plan), func(t *testing.T) {
				s := newFixture(t)
				s.plan(plan, 1)
				broken := errors.New("no log")
				ctx, cancel := context.WithCancel(t.Context())
				fail := func() error {
					if flush {
						s.flush() // the charge is in the log before its refund
					}
					cancel() // the caller is gone
					return broken
				}
				if err := s.events.ChargeEvent(ctx, s.caller, noon, fail); !errors.Is(err, broken) {
					t.Fatalf("error %v", err)
				}
				s.wantUsed("failed", usage.Used{})
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the panic was lost")
						}
					}()
					panics := func() error { panic("work") }
					if err := s.events.ChargeEvent(t.Context(), s.caller, noon, panics); err != nil {
						t.Error(err)
					}
				}()
				s.wantUsed("panicked", usage.Used{})
				s.flush()
				s.receive(noon) // the last paid one
				s.flush()
				s.wantUsed("received", usage.Used{WebhookEvents: 1, CreditTenths: 1})
			})
		}
	}
}

// A refund that follows the flush of its charge waits for the next event, and holds up no recall.
func TestEvent_RefundHoldsUpNoRecall(t *testing.T) {
	s := newFixture(t)
	s.plan(metering.Flex, 5)
	broken := errors.New("no log")
	err := s.events.ChargeEvent(t.Context(), s.caller, noon, func() error {
		s.flush()
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if _, ok, err := s.pending.Oldest(t.Context()); ok || err != nil {
		t.Errorf("a refund that waits counts as late: %v", err)
	}
	s.recall("ana", noon)
	s.flush()
	s.wantUsed("recalled", usage.Used{Recalls: 1})
	list := s.charged("2026-11")
	if len(list) != 2 || list[1].Recalls != 1 || list[1].WebhookEvents != 0 || list[1].WebhookTenths != 0 {
		t.Errorf("the log has %+v", list)
	}
	s.receive(noon)
	s.receive(noon)
	s.flush()
	s.flush()
	s.wantUsed("received", usage.Used{Recalls: 1, WebhookEvents: 2, CreditTenths: 2})
	if s.left() != 0 {
		t.Errorf("%d rows are left", s.left())
	}
}

// Two processes take exactly as many events as are paid for, while others send and reserve, while flushes
// append their sums.
func TestEvent_ConcurrentSpendIsExact(t *testing.T) {
	const credits, callers, each = 60, 8, 12
	s := newFixture(t)
	s.plan(metering.Flex, credits)
	var limiters []*limiter.Limiter
	var events []*limiter.Events
	for range 2 {
		l := s.limiter(metering.DefaultPlanTerms(), nil)
		limiters, events = append(limiters, l), append(events, limiter.NewEvents(l, discard))
	}
	var received, reserved atomic.Int64
	var group sync.WaitGroup
	for n := range callers {
		group.Go(func() {
			for i := range each {
				tenths, done := int64(1), &received
				var err error
				if i%4 == 3 {
					tenths, done = 2, &reserved
					err = limiters[n%2].Reserve(t.Context(), metering.Reservation{
						OrganizationID: s.caller.OrganizationID, ProjectID: s.caller.Project.ID, SendID: uuid.New(), Try: uuid.New(),
						Limits: s.caller.Limits, At: noon, Items: 1, CreditTenths: tenths,
					}, time.Hour)
				} else {
					err = events[n%2].ChargeEvent(t.Context(), s.caller, noon, func() error { return nil })
				}
				if err == nil {
					done.Add(tenths)
				} else if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.CodeOutOfCredits {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		if err := s.process(&crash{}).Flush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
	s.flush()
	s.wantUsed("in the end", usage.Used{WebhookEvents: received.Load(), CreditTenths: received.Load()})
	// A send of two may be refused with one left, which only another event can spend.
	if spent := received.Load() + reserved.Load(); spent > credits || spent < credits-1 {
		t.Errorf("%d are received and %d reserved of %d", received.Load(), reserved.Load(), credits)
	}
}

// An event whose caller leaves before the decision is charged nothing, and does no work.
func TestEvent_CallerLeaves(t *testing.T) {
	s := newFixture(t)
	s.plan(metering.Flex, 5)
	tx, err := s.db.Begin(t.Context())
	runtest.Must(t, err)
	if _, err := tx.Exec(t.Context(), `insert into ops.meters (organization_id) values ($1)`,
		s.caller.OrganizationID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	const callers = 3 // the first is in a group; the others may wait for the next
	for range callers {
		go func() {
			ended <- s.events.ChargeEvent(ctx, s.caller, noon, func() error {
				t.Error("it worked")
				return nil
			})
		}()
	}
	waitForLock(t, s)
	cancel()
	runtest.Must(t, tx.Rollback(t.Context()))
	for range callers {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
	s.wantUsed("left", usage.Used{})
	s.receive(noon)
	s.wantUsed("received", usage.Used{WebhookEvents: 1, CreditTenths: 1})
}

// waitForLock returns once a statement waits for a lock.
func waitForLock(t *testing.T, s *fixture) {
	t.Helper()
	runtest.Await(t, "a decision that waits for the lock", func() bool {
		var waiting bool
		err := s.db.QueryRow(t.Context(), `select exists (select from pg_locks l join pg_stat_activity a using (pid)
			where not l.granted and a.datname = current_database())`).Scan(&waiting)
		return err == nil && waiting
	})
}

func TestEvent_StoppedProjections(t *testing.T) {
	for _, name := range []string{"usage", "datapoints"} {
		s := newFixture(t)
		s.events = limiter.NewEvents(s.limiter(metering.DefaultPlanTerms(), stopped(name)), discard)
		s.receive(noon) // without limits, it reads no account
		s.plan(metering.Flex, 100)
		_ = s.refusedEvent(fault.CodeServiceUnavailable)
	}
}

func TestEvent_CountFails(t *testing.T) {
	s := newFixture(t)
	s.db.Close()
	err := s.events.ChargeEvent(t.Context(), s.caller, noon, func() error { return nil })
	wantFault(t, err, fault.CodeServiceUnavailable)
}
