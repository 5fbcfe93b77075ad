package metering_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/metering"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

// generous gives allowances, so that what expires differs from what rolls over.
func generous() metering.PlanTerms {
	t := metering.DefaultPlanTerms()
	for plan, tenths := range map[metering.Plan]int64{metering.Flex: 1000, metering.Enterprise: 5000} {
		terms := t[plan]
		terms.AllowanceTenths = tenths
		t[plan] = terms
	}
	return t
}

func plan(p metering.Plan, month string, charged int64) metering.PlanChange {
	return metering.PlanChange{Plan: p, Month: month, ChargedTenths: charged}
}

func TestBalance(t *testing.T) {
	const jan, feb, mar = "2026-01", "2026-02", "2026-03"
	starting := map[string]metering.Granted{jan: {StartingTenths: 1500}}
	for _, c := range []struct {
		name   string
		ledger metering.Ledger
		month  string
		want   metering.Balance
		left   int64
	}{
		{"nothing", metering.Ledger{}, jan, metering.Balance{Plan: metering.SelfHosted}, 0},
		{
			"starting credits are included in their month",
			metering.Ledger{Plans: []metering.PlanChange{plan(metering.PayAsYouGo, jan, 0)}, Granted: starting, Charged: map[string]int64{jan: 400}},
			jan,
			metering.Balance{Plan: metering.PayAsYouGo, IncludedTenths: 1500, SpentTenths: 400},
			1100,
		},
		{
			"and what is left of them rolls over",
			metering.Ledger{Plans: []metering.PlanChange{plan(metering.PayAsYouGo, jan, 0)}, Granted: starting, Charged: map[string]int64{jan: 400, feb: 100}},
			feb,
			metering.Balance{Plan: metering.PayAsYouGo, RolledOverTenths: 1100, SpentTenths: 100},
			1000,
		},
		{
			"over months in which nothing happened",
			metering.Ledger{Plans: []metering.PlanChange{plan(metering.PayAsYouGo, jan, 0)}, Granted: starting},
			"2027-05",
			metering.Balance{Plan: metering.PayAsYouGo, RolledOverTenths: 1500},
			1500,
		},
		{
			"an allowance is spent first",
			metering.Ledger{Plans: []metering.PlanChange{plan(metering.Flex, jan, 0)}, Granted: starting, Charged: map[string]int64{jan: 1200}},
			feb,
			metering.Balance{Plan: metering.Flex, IncludedTenths: 1000, RolledOverTenths: 1300},
			2300,
		},
		{
			"and expires",
			metering.Ledger{Plans: []metering.PlanChange{plan(metering.Flex, jan, 0)}, Charged: map[string]int64{jan: 400}},
			feb,
			metering.Balance{Plan: metering.Flex, IncludedTenths: 1000},
			1000,
		},
		{
			"what was used before a plan metered it is not spent",
			metering.Ledger{Plans: []metering.PlanChange{plan(metering.PayAsYouGo, jan, 700)}, Granted: starting, Charged: map[string]int64{jan: 900}},
			jan,
			metering.Balance{Plan: metering.PayAsYouGo, IncludedTenths: 1500, SpentTenths: 200},
			1300,
		},
		{
			"nor what is used after",
			metering.Ledger{
				Plans:   []metering.PlanChange{plan(metering.PayAsYouGo, jan, 0), plan(metering.SelfHosted, jan, 300), plan(metering.PayAsYouGo, feb, 50)},
				Granted: starting, Charged: map[string]int64{jan: 900, feb: 60},
			},
			feb,
			metering.Balance{Plan: metering.PayAsYouGo, RolledOverTenths: 1200, SpentTenths: 10},
			1190,
		},
		{
			"a change within the month gives the larger allowance",
			metering.Ledger{Plans: []metering.PlanChange{plan(metering.Enterprise, jan, 0), plan(metering.Flex, feb, 2000)}, Charged: map[string]int64{feb: 2100}},
			feb,
			metering.Balance{Plan: metering.Flex, IncludedTenths: 5000, SpentTenths: 2100},
			2900,
		},
		{
			"what is taken back is less bought",
			metering.Ledger{Plans: []metering.PlanChange{plan(metering.PayAsYouGo, jan, 0)}, Granted: map[string]metering.Granted{jan: {StartingTenths: 1500}, feb: {BoughtTenths: -600}}},
			feb,
			metering.Balance{Plan: metering.PayAsYouGo, BoughtTenths: -600, RolledOverTenths: 1500},
			900,
		},
		{
			"what was overspent is not carried on",
			metering.Ledger{
				Plans:   []metering.PlanChange{plan(metering.PayAsYouGo, jan, 0)},
				Granted: map[string]metering.Granted{jan: {BoughtTenths: 10}, feb: {BoughtTenths: 5}}, Charged: map[string]int64{jan: 30},
			},
			feb,
			metering.Balance{Plan: metering.PayAsYouGo, BoughtTenths: 5},
			5,
		},
		{
			"within its month it leaves nothing",
			metering.Ledger{Plans: []metering.PlanChange{plan(metering.PayAsYouGo, jan, 0)}, Granted: map[string]metering.Granted{jan: {BoughtTenths: 10}}, Charged: map[string]int64{jan: 30}},
			jan,
			metering.Balance{Plan: metering.PayAsYouGo, BoughtTenths: 10, SpentTenths: 30},
			0,
		},
		{
			"what comes later changes no month before",
			metering.Ledger{
				Plans: []metering.PlanChange{plan(metering.PayAsYouGo, jan, 0), plan(metering.SelfHosted, mar, 0)}, Granted: map[string]metering.Granted{jan: {BoughtTenths: 10}, mar: {BoughtTenths: 7}},
				Charged: map[string]int64{mar: 3},
			},
			feb,
			metering.Balance{Plan: metering.PayAsYouGo, RolledOverTenths: 10},
			10,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.ledger.Balance(generous(), c.month)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.LeftTenths() != c.left {
				t.Errorf("left %d, want %d", got.LeftTenths(), c.left)
			}
		})
	}
}

// purse is a balance that is kept step by step, as one would with coins: an allowance that is
// emptied at each month's turn, and the rest. An allowance that comes in the midst of a month pays
// what was taken from the rest in it.
type purse struct {
	plan             metering.Plan
	allowance, spent int64 // given in this month, and spent of it
	rest, taken      int64 // and taken from it in this month
}

func (p *purse) allow(t metering.PlanTerms) {
	if p.plan.Metered() {
		p.allowance = max(p.allowance, t[p.plan].AllowanceTenths)
	}
	taken := p.taken
	p.rest, p.taken = p.rest+taken, 0
	p.spend(taken)
}

func (p *purse) left() int64 { return p.allowance - p.spent + p.rest }

func (p *purse) spend(tenths int64) {
	fromAllowance := min(tenths, p.allowance-p.spent)
	p.spent += fromAllowance
	p.rest -= tenths - fromAllowance
	p.taken += tenths - fromAllowance
}

func TestBalance_MatchesAPurse(t *testing.T) {
	plans := []metering.Plan{metering.SelfHosted, metering.PayAsYouGo, metering.Flex, metering.Enterprise}
	tariff := generous()
	rapid.Check(t, func(t *rapid.T) {
		p := &purse{plan: metering.SelfHosted}
		l := metering.Ledger{Granted: map[string]metering.Granted{}, Charged: map[string]int64{}}
		month, n := "2026-01", 1
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				p.plan = rapid.SampledFrom(plans).Draw(t, "plan")
				p.allow(tariff)
				l.Plans = append(l.Plans, plan(p.plan, month, l.Charged[month]))
			case 1:
				g := l.Granted[month]
				starting := rapid.Int64Range(0, 3000).Draw(t, "starting")
				g.StartingTenths += starting
				p.rest += starting
				l.Granted[month] = g
			case 2: // bought, or taken back down to nothing of what rolls over
				g := l.Granted[month]
				bought := rapid.Int64Range(-p.rest, 3000).Draw(t, "bought")
				g.BoughtTenths += bought
				p.rest += bought
				l.Granted[month] = g
			case 3:
				n += rapid.IntRange(1, 3).Draw(t, "months")
				month = fmt.Sprintf("%04d-%02d", 2026+(n-1)/12, (n-1)%12+1)
				p.allowance, p.spent, p.taken = 0, 0, 0
				p.allow(tariff)
			default: // used: as much as is left, or anything where nothing is metered
				most := int64(3000)
				if p.plan.Metered() {
					most = min(most, p.left())
				}
				used := rapid.Int64Range(0, most).Draw(t, "used")
				l.Charged[month] += used
				if p.plan.Metered() {
					p.spend(used)
				}
			}
			b := l.Balance(tariff, month)
			if b.LeftTenths() != p.left() || b.Plan != p.plan {
				t.Fatalf("the balance of %s is %+v, %d left; the purse %+v holds %d\nledger %+v", month, b, b.LeftTenths(), p,
					p.left(), l)
			}
			if b.IncludedTenths+b.BoughtTenths+b.RolledOverTenths-b.SpentTenths != b.LeftTenths() || b.RolledOverTenths < 0 ||
				b.SpentTenths < 0 {
				t.Fatalf("the parts do not add up: %+v", b)
			}
		}
	})
}
