package limiter_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// plan puts the caller's organization on a plan, with so many starting credits in tenths.
func (s *fixture) plan(plan metering.Plan, tenths int64) {
	s.t.Helper()
	var log projectiontest.Log
	name := stream.Name(stream.Organization, s.caller.OrganizationID)
	log.Append(name,
		&organization.PlanSet{OrganizationID: s.caller.OrganizationID, Plan: plan, Month: "2026-11", SetAt: noon})
	log.Append(name, &organization.CreditsGranted{
		OrganizationID: s.caller.OrganizationID,
		Kind:           metering.Starting,
		Tenths:         tenths,
		Month:          "2026-11",
		GrantedAt:      noon,
	})
	projectiontest.Apply(s.t, s.db, usage.New(), log.Facts...)
	s.caller.Limits.Plan = plan
}

// refuse makes a recall that must not search.
func (s *fixture) refuse(code string) {
	s.t.Helper()
	if f := s.refused(code); f.Msg == "" {
		s.t.Error("the fault has no message")
	}
}

// refused makes a recall that must not search, and returns its fault.
func (s *fixture) refused(code string) *fault.Error {
	s.t.Helper()
	err := s.recalls.Charge(s.t.Context(), s.caller, "ana", noon, func() error {
		s.t.Error("it searched")
		return nil
	})
	return wantFault(s.t, err, code)
}

func TestRecall_CostOnPayAsYouGo(t *testing.T) {
	s := newFixture(t)
	s.plan(metering.PayAsYouGo, 2)
	s.recall("ana", noon)
	s.flush()
	s.recall("bo", noon)
	f := s.refused(fault.CodeOutOfCredits)
	if f.Kind != fault.PaymentRequired || len(f.Data) != 2 || f.Data["creditsLeft"] != metering.Credits(0) ||
		f.Data["creditsNeeded"] != metering.Credits(1) {
		t.Errorf("fault %+v", f)
	}
	s.wantUsed("recalled", usage.Used{Recalls: 2, CreditTenths: 2})
	b, err := s.queries.Balance(t.Context(), s.caller.OrganizationID, noon)
	if err != nil || b.LeftTenths() != 0 || b.SpentTenths != 2 || b.IncludedTenths != 2 || b.Plan != metering.PayAsYouGo {
		t.Errorf("balance %+v, %v", b, err)
	}
	if charged, err := s.queries.Charged(t.Context(), s.caller.OrganizationID, "2026-11"); err != nil || charged != 2 {
		t.Errorf("charged %d, %v", charged, err)
	}
	// Another organization has separate credits.
	s.newCaller()
	s.plan(metering.PayAsYouGo, 1)
	s.recall("ana", noon)
	s.refuse(fault.CodeOutOfCredits)
}

func TestRecall_SpendCap(t *testing.T) {
	s := newFixture(t)
	s.plan(metering.PayAsYouGo, 1)
	s.caller.Limits.SpendCapTenths = limit(1)
	s.recall("ana", noon)
	f := s.refused(fault.CodeSpendCapReached) // reported before the credits, which are spent too
	if f.Kind != fault.LimitReached || f.Data["cap"] != metering.Credits(1) || f.Data["spent"] != metering.Credits(1) ||
		f.Data["resetsAt"] != metering.MonthEnd(noon) {
		t.Errorf("fault %+v", f)
	}
	s.caller.Limits.SpendCapTenths = limit(2)
	s.refuse(fault.CodeOutOfCredits)
}

func TestRecall_OtherPlans(t *testing.T) {
	for _, plan := range []metering.Plan{"", metering.SelfHosted, metering.Flex, metering.Enterprise} {
		t.Run(string(plan), func(t *testing.T) {
			s := newFixture(t)
			if plan != "" {
				s.plan(plan, 0)
			}
			// Caps of the project refuse no recall on any plan, and the spend cap none that costs nothing.
			s.caller.Limits.SpendCapTenths, s.caller.Limits.CreditCapTenths = limit(0), limit(0)
			s.caller.Limits.IngestionCap = limit(0)
			s.recall("ana", noon)
			s.wantUsed("recalled", usage.Used{Recalls: 1})
		})
	}
}

func TestRecall_ProjectCaps(t *testing.T) {
	s := newFixture(t)
	s.plan(metering.PayAsYouGo, 1)
	s.caller.Limits.CreditCapTenths, s.caller.Limits.IngestionCap = limit(0), limit(0)
	s.recall("ana", noon)
	s.wantUsed("recalled", usage.Used{Recalls: 1, CreditTenths: 1})
}

func TestRecall_FailedRecallIsFree(t *testing.T) {
	for _, plan := range []metering.Plan{metering.SelfHosted, metering.PayAsYouGo} {
		t.Run(string(plan), func(t *testing.T) {
			s := newFixture(t)
			s.plan(plan, 1)
			broken := errors.New("no index")
			for _, flush := range []bool{false, true} {
				ctx, cancel := context.WithCancel(t.Context())
				err := s.recalls.Charge(ctx, s.caller, "ana", noon, func() error {
					if flush {
						s.flush() // the charge is in the log before its refund
					}
					cancel() // the caller is gone
					return broken
				})
				if !errors.Is(err, broken) {
					t.Fatalf("error %v", err)
				}
				s.wantUsed("failed", usage.Used{})
			}
			if len(s.seen("2026-11")) != 0 {
				t.Error("the identity was seen")
			}
			s.flush()
			s.recall("ana", noon) // the last paid one
			s.flush()
			if got := s.used("2026-11"); got.Recalls != 1 {
				t.Errorf("used %+v", got)
			}
		})
	}
}

// Two processes return exactly as many recalls as are paid for, while flushes append their sums.
func TestRecall_ConcurrentSpendIsExact(t *testing.T) {
	const credits, callers, each = 40, 8, 10
	s := newFixture(t)
	s.plan(metering.PayAsYouGo, credits)
	processes := []*limiter.Recalls{s.recalls, s.counter()}
	var answered, refused atomic.Int64
	var group sync.WaitGroup
	for n := range callers {
		group.Go(func() {
			for range each {
				err := processes[n%2].Charge(t.Context(), s.caller, "ana", noon, func() error { return nil })
				switch f, ok := errors.AsType[*fault.Error](err); {
				case err == nil:
					answered.Add(1)
				case ok && f.Code == fault.CodeOutOfCredits:
					refused.Add(1)
				default:
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
	if answered.Load() != credits || refused.Load() != callers*each-credits || s.used("2026-11").CreditTenths != credits {
		t.Errorf("%d answered, %d refused, used %+v", answered.Load(), refused.Load(), s.used("2026-11"))
	}
}

// Calls of many projects share statements in two processes, while flushes append their sums,
// without a deadlock.
func TestRecall_ConcurrentRecallsAreCounted(t *testing.T) {
	const callers, each, projects = 16, 40, 12
	s := newFixture(t)
	other := s.counter()
	of := make([]uuid.UUID, projects)
	for n := range of {
		of[n] = uuid.New()
	}
	var group sync.WaitGroup
	for n := range callers {
		group.Go(func() {
			for i := range each {
				r, p := s.recalls, s.caller
				if n%2 == 1 {
					r = other
				}
				p.Project.ID = of[(n+i*n)%projects]
				if err := r.Charge(t.Context(), p, []string{"ana", "bo", "cy"}[n%3], noon, func() error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		s.flush()
	}
	group.Wait()
	s.flush()
	s.flush()
	a, err := s.queries.Account(t.Context(), s.caller.OrganizationID, "2026-11")
	runtest.Must(t, err)
	var recalls, left int64
	for _, used := range a.Projects {
		recalls += used.Recalls
	}
	runtest.Must(t, s.db.QueryRow(t.Context(),
		`select (select count(*) from ops.charges) + (select count(*) from ops.seen)`).Scan(&left))
	if recalls != callers*each || left != 0 {
		t.Errorf("%d recalls, %d rows left", recalls, left)
	}
}

func TestRecall_StoppedProjections(t *testing.T) {
	for _, name := range []string{"usage", "datapoints"} {
		s := newFixture(t)
		s.recalls = limiter.NewRecalls(s.limiter(metering.DefaultPlanTerms(), stopped(name)), discard)
		s.plan(metering.PayAsYouGo, 100)
		s.refuse(fault.CodeServiceUnavailable)
		s.plan(metering.Flex, 0)
		s.recall("ana", noon) // this plan reads no account
	}
}

func TestRecall_CountFails(t *testing.T) {
	s := newFixture(t)
	s.db.Close()
	err := s.recalls.Charge(t.Context(), s.caller, "ana", noon, func() error { return nil })
	wantFault(t, err, fault.CodeServiceUnavailable)
}

func TestCeiling(t *testing.T) {
	s := newFixture(t)
	for plan, want := range map[metering.Plan]int{
		"": 32000, metering.SelfHosted: 32000, metering.PayAsYouGo: 8000, metering.Flex: 8000,
		metering.Enterprise: 32000,
	} {
		if got := s.recalls.Ceiling(plan); got != want {
			t.Errorf("%s: %d, want %d", plan, got, want)
		}
	}
}

func TestPendingSeen_OneProject(t *testing.T) {
	s := newFixture(t)
	s.recall("ana", noon)
	neighbour := auth.Project{ID: uuid.New()}
	if seen, err := s.pending.PendingSeen(t.Context(), neighbour, []uuid.UUID{s.identity("ana")}); err != nil ||
		len(seen) != 0 {
		t.Errorf("seen %v, %v", seen, err)
	}
}
