package metering

import (
	"maps"
	"slices"
)

// PlanChange is a change of an organization's plan in Month, after ChargedTenths had been charged
// in that month.
type PlanChange struct {
	Plan          Plan
	Month         string
	ChargedTenths int64
}

// Granted is what an organization was granted in a month. Bought is negative if more was taken
// back.
type Granted struct {
	StartingTenths int64
	BoughtTenths   int64
}

// Ledger is everything from which the balance of an organization follows.
type Ledger struct {
	// Plans are the changes, oldest first. Before the first, the organization is not metered.
	Plans []PlanChange
	// Granted and Charged are by month ("2006-01"). Charged is the price of all sends and recalls,
	// metered or not.
	Granted map[string]Granted
	Charged map[string]int64
}

// Balance is the credits of an organization in one month, in tenths.
type Balance struct {
	// Plan is the current one. If it is not metered, the figures are those of the metered times, and
	// clients do not see them.
	Plan Plan
	// IncludedTenths are the starting credits of the month and the plan's allowance. BoughtTenths are
	// the other grants, less what was taken back. RolledOverTenths are the starting and bought credits
	// that were left at the end of the month before. SpentTenths is what was charged while the plan
	// was metered.
	IncludedTenths   int64
	BoughtTenths     int64
	RolledOverTenths int64
	SpentTenths      int64
}

// LeftTenths is what can be spent, never below 0.
func (b Balance) LeftTenths() int64 {
	return max(0, b.IncludedTenths+b.BoughtTenths+b.RolledOverTenths-b.SpentTenths)
}

// Balance returns the balance of a month under the terms of a tariff. Allowances are spent first
// and expire with their month; the rest rolls over. A deficit, from calls that arrived while
// credits were taken back, is not carried into the next month.
func (l Ledger) Balance(terms PlanTerms, month string) Balance {
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
		plan, allowance, spent := l.month(terms, m)
		granted := l.Granted[m]
		b = Balance{
			Plan: plan, IncludedTenths: granted.StartingTenths + allowance, BoughtTenths: granted.BoughtTenths,
			RolledOverTenths: left, SpentTenths: spent,
		}
		left = max(0, left+granted.StartingTenths+granted.BoughtTenths-max(0, spent-allowance))
	}
	return b
}

// month returns the plan at the end of a month, its allowance, and what was spent in it while a
// metered plan was in force. After a change of plan within the month, the larger allowance holds
// for the whole month, so that no change takes away what was spent.
func (l Ledger) month(terms PlanTerms, month string) (plan Plan, allowance, spent int64) {
	plan = SelfHosted
	var since int64
	until := func(charged int64) {
		if plan.Metered() {
			allowance = max(allowance, terms[plan].AllowanceTenths)
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
