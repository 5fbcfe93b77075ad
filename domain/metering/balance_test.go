package metering_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	_ "github.com/annals-project/annals/internal/seedtest"
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

func TestIngestTenths(t *testing.T) {
	for size, want := range map[int64]int64{0: 10, 1: 10, 350: 10, 351: 20, 700: 20, 701: 30, 16 << 20: 479350} {
		if got := metering.IngestTenths(size); got != want {
			t.Errorf("IngestTenths(%d) = %d, want %d", size, got, want)
		}
	}
}

func TestMonth_UTC(t *testing.T) {
	at := time.Date(2026, 12, 31, 23, 30, 0, 0, time.FixedZone("", -3600))
	if got := metering.Month(at); got != "2027-01" {
		t.Errorf("Month = %s", got)
	}
}

func limit(n int64) *int64 { return &n }

func TestRefuse(t *testing.T) {
	at := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	all := metering.Caps{
		Plan:            metering.Flex,
		SpendCapTenths:  limit(500),
		IngestionCap:    limit(10),
		CreditCapTenths: limit(300),
	}
	room := metering.Used{Ingestions: 8, ProjectTenths: 280, OrganizationTenths: 480, LeftTenths: 20}
	for name, c := range map[string]struct {
		limits metering.Caps
		change func(*metering.Used)
		code   string
		data   string
	}{
		"all of it fits":          {limits: all},
		"one data point too many": {all, func(u *metering.Used) { u.Ingestions++ }, fault.CodeProjectCapReached, `{"cap":"ingestion","limit":10,"resetsAt":"2027-01-01T00:00:00Z","used":9}`},
		"a tenth over the project's cap": {
			all, func(u *metering.Used) { u.ProjectTenths++ }, fault.CodeProjectCapReached,
			`{"cap":"credit","limit":30,"resetsAt":"2027-01-01T00:00:00Z","used":28.1}`,
		},
		"a tenth over the spend cap": {
			all, func(u *metering.Used) { u.OrganizationTenths++ }, fault.CodeSpendCapReached, `{"cap":50,"resetsAt":"2027-01-01T00:00:00Z","spent":48.1}`,
		},
		"a tenth short": {
			all, func(u *metering.Used) { u.LeftTenths-- }, fault.CodeOutOfCredits, `{"creditsLeft":1.9,"creditsNeeded":2,"resetsOn":null}`,
		},
		"the project's caps come first": {all, func(u *metering.Used) { *u = metering.Used{Ingestions: 9, ProjectTenths: 300, OrganizationTenths: 500} }, fault.CodeProjectCapReached, ""},
		"then the spend cap":            {all, func(u *metering.Used) { u.OrganizationTenths, u.LeftTenths = 500, 0 }, fault.CodeSpendCapReached, ""},
		"nothing left where nothing is metered": {
			metering.Caps{Plan: metering.SelfHosted, SpendCapTenths: limit(500)}, func(u *metering.Used) { u.LeftTenths = -1000 }, "", "",
		},
		"caps bind where nothing is metered": {metering.Caps{IngestionCap: limit(10)}, func(u *metering.Used) { u.Ingestions = 10 }, fault.CodeProjectCapReached, ""},
		"a cap of nothing":                   {metering.Caps{IngestionCap: limit(0)}, func(u *metering.Used) { u.Ingestions = 0 }, fault.CodeProjectCapReached, ""},
		"no caps":                            {metering.Caps{}, func(u *metering.Used) { u.Ingestions, u.OrganizationTenths = 1<<40, 1<<40 }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			used := room
			if c.change != nil {
				c.change(&used)
			}
			err := metering.Reservation{
				Limits:       c.limits,
				At:           at,
				Items:        2,
				CreditTenths: 20,
			}.Refuse(used, metering.DefaultPlanTerms()[c.limits.Plan])
			if c.code == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			f, ok := errors.AsType[*fault.Error](err)
			if !ok || f.Code != c.code {
				t.Fatalf("error %v, want %s", err, c.code)
			}
			data, err := json.Marshal(f.Data)
			if err != nil || c.data != "" && string(data) != c.data {
				t.Errorf("data %s, %v, want %s", data, err, c.data)
			}
		})
	}
}

// A plan with an allowance reports when the next one is due.
func TestCredits_Renewed(t *testing.T) {
	r := metering.Reservation{
		Limits:       metering.Caps{Plan: metering.Flex},
		At:           time.Date(2026, 11, 30, 23, 30, 0, 0, time.FixedZone("", -3600)),
		Items:        1,
		CreditTenths: 10,
	}
	f, ok := errors.AsType[*fault.Error](r.Refuse(metering.Used{}, metering.Terms{AllowanceTenths: 1}))
	if !ok {
		t.Fatal("not refused")
	}
	// Half an hour before midnight an hour west of Greenwich is December already.
	if on, ok := f.Data["resetsOn"].(*string); !ok || on == nil || *on != "2027-01-01" {
		t.Errorf("data %v", f.Data)
	}
}

func TestBind(t *testing.T) {
	for name, c := range map[string]struct {
		limits metering.Caps
		want   bool
	}{
		"nothing":        {metering.Caps{}, false},
		"self-hosted":    {metering.Caps{Plan: metering.SelfHosted}, false},
		"a plan":         {metering.Caps{Plan: metering.PayAsYouGo}, true},
		"a spend cap":    {metering.Caps{Plan: metering.SelfHosted, SpendCapTenths: limit(0)}, true},
		"ingestions":     {metering.Caps{Plan: metering.SelfHosted, IngestionCap: limit(0)}, true},
		"project credit": {metering.Caps{Plan: metering.SelfHosted, CreditCapTenths: limit(0)}, true},
	} {
		if got := c.limits.Bind(); got != c.want {
			t.Errorf("%s binds: %v", name, got)
		}
	}
}

func TestCredits(t *testing.T) {
	for tenths, want := range map[int64]string{0: "0", 1: "0.1", 10: "1", 125: "12.5", -5: "-0.5", -25: "-2.5", 1_500_000: "150000"} {
		if got := metering.Credits(tenths); got.String() != want {
			t.Errorf("Credits(%d) = %s, want %s", tenths, got, want)
		}
	}
}
