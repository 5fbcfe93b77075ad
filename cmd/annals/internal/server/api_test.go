package server

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
)

// TestRateLimits_EveryPlan calls until a call is refused, at an instant that does not pass.
func TestRateLimits_EveryPlan(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	through := func(every *int, plan metering.Plan) int {
		t.Helper()
		l := newRateLimits(every, metering.DefaultPlanTerms(), func() time.Time { return at })
		p := auth.Principal{Kind: auth.ProjectKey, OrganizationID: uuid.New(), Limits: metering.Caps{Plan: plan}}
		for n := range 3500 {
			if retry, ok := l.allow(p); !ok {
				if retry != time.Minute {
					t.Errorf("%s: retry after %s", plan, retry)
				}
				p.OrganizationID = uuid.New()
				if _, ok := l.allow(p); !ok {
					t.Errorf("%s: the calls of a neighbour count", plan)
				}
				return n
			}
		}
		return -1
	}
	for plan, want := range map[metering.Plan]int{
		metering.SelfHosted: -1, metering.PayAsYouGo: 120,
		metering.Flex: 600, metering.Enterprise: 3000,
	} {
		if got := through(nil, plan); got != want {
			t.Errorf("%s: %d calls come through, want %d", plan, got, want)
		}
		if got := through(new(7), plan); got != 7 {
			t.Errorf("%s, set to 7: %d calls come through", plan, got)
		}
		if got := through(new(0), plan); got != -1 {
			t.Errorf("%s, set to 0: %d calls come through", plan, got)
		}
	}
}
