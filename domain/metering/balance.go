package metering

import (
	"maps"
	"slices"
)

// PlanChange is a plan that an organization came to: in Month, when ChargedTenths had been charged in that month.
type PlanChange struct {
	Plan          Plan
	Month         string
	ChargedTenths int64
}

// Granted is what came to an organization in a month; Bought is below 0 where more was taken back.
type Granted struct {
	StartingTenths int64
	BoughtTenths   int64
}

// Ledger is all that the balance of an organization follows from.
type Ledger struct {
	// Plans are the changes, oldest first. Before the first nothing is metered.
	Plans []PlanChange
	// Granted and Charged are by month ("2006-01"); charged is what all projects were priced at, metered or not.
	Granted map[string]Granted
	Charged map[string]int64
}

// Balance is the credits of an organization in one month, in tenths.
type Balance struct {
	// Plan is the one that it is on now. Where that is not metered the figures are those of its metered times, and no client sees them.
	Plan Plan
	// IncludedTenths are starting credits of the month and the plan's allowance; BoughtTenths what was granted beside, less what was
	// taken back; RolledOverTenths what was left at the month's turn of starting and bought credits; SpentTenths what was charged while
	// the plan was metered.
	IncludedTenths   int64
	BoughtTenths     int64
	RolledOverTenths int64
	SpentTenths      int64
}

// LeftTenths is what can be spent, never below 0.
func (b Balance) LeftTenths() int64 {
	return max(0, b.IncludedTenths+b.BoughtTenths+b.RolledOverTenths-b.SpentTenths)
}

// Balance is the balance of a month under the terms of a tariff. Allowances are spent first and expire with their month; the
// rest rolls over. What was overspent, by calls that came in while credits were taken back, is not carried into the next month.
func (l Ledger) Balance(tariff Tariff, month string) Balance {
	months := map[string]bool{month: true}
	for m := range l.Granted {
		months[m] = true
	}
	for m := range l.Charged {
		months[m] = true
	}
	var b Balance
	var left int64
	for _, m := range slices.Sorted(maps.Keys(months)) {
		if m > month {
			break
		}
		plan, allowance, spent := l.month(tariff, m)
		granted := l.Granted[m]
		b = Balance{
			Plan: plan, IncludedTenths: granted.StartingTenths + allowance, BoughtTenths: granted.BoughtTenths,
			RolledOverTenths: left, SpentTenths: spent,
		}
		left = max(0, left+granted.StartingTenths+granted.BoughtTenths-max(0, spent-allowance))
	}
	return b
}

// month is the plan at the end of a month, the allowance of the month, and what was spent in it while a metered plan was in
// force. A change of plan within the month gives the larger of the allowances for all of
// it, so that no change takes away what was spent already.
func (l Ledger) month(tariff Tariff, month string) (plan Plan, allowance, spent int64) {
	plan = SelfHosted
	var since int64
	until := func(charged int64) {
		if plan.Metered() {
			allowance = max(allowance, tariff[plan].AllowanceTenths)
			spent += max(0, charged-since)
		}
		since = max(since, charged)
	}
	for _, c := range l.Plans {
		if c.Month > month {
			break
		}
		if c.Month == month {
			until(c.ChargedTenths)
		}
		plan = c.Plan
	}
	until(l.Charged[month])
	return plan, allowance, spent
}
