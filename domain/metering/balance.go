// Package metering prices what is ingested. Credits are counted in tenths, without rounding of
// floats.
package metering

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
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

// BytesPerCredit is how many bytes of content one credit buys.
const BytesPerCredit = 350

// IngestTenths returns the price of a content with a number of bytes of UTF-8, in tenths of a
// credit: one credit per started 350 bytes, at least one.
func IngestTenths(size int64) int64 {
	credits := (size + BytesPerCredit - 1) / BytesPerCredit
	return max(credits, 1) * 10
}

// WebhookEventTenths is the price of an event that a webhook receives, in tenths of a credit. What it
// is ingested as costs its own price.
const WebhookEventTenths = 1

// Month returns the UTC calendar month of an instant, as "2006-01".
func Month(at time.Time) string { return at.UTC().Format("2006-01") }

// Reservation is what a send reserves of the caps of its project and its organization before its
// commit.
type Reservation struct {
	OrganizationID uuid.UUID
	ProjectID      uuid.UUID
	// SendID is the send that the reservation is converted to. Try identifies a try of the send: with
	// an idempotency key, several may run at once.
	SendID, Try uuid.UUID
	Limits      Caps
	// At is the time of the request, which determines its month.
	At time.Time
	// Items are the data points that get a revision, CreditTenths their price together.
	Items        int64
	CreditTenths int64
}

// Used is what projected sends and other reservations use.
type Used struct {
	// Ingestions and ProjectTenths are those of the project in the month, OrganizationTenths those of
	// all projects of the organization.
	Ingestions         int64
	ProjectTenths      int64
	OrganizationTenths int64
	// LeftTenths is what is left of the balance. It is ignored if the plan is not metered.
	LeftTenths int64
}

// Bind reports whether sends have caps. Without a cap, no reservation is made.
func (l Caps) Bind() bool {
	return l.Plan.Metered() || l.SpendCapTenths != nil || l.IngestionCap != nil || l.CreditCapTenths != nil
}

// Names of caps of a project, in the data of a refusal.
const (
	capIngestion = "ingestion"
	capCredit    = "credit"
)

// Refuse returns the fault of a reservation that passes the caps, nil if it passes none. The faults
// are, in the order of the checks, project-cap-reached, spend-cap-reached and out-of-credits. The
// terms are those of the plan.
func (r Reservation) Refuse(used Used, terms Terms) error {
	l := r.Limits
	resets := MonthEnd(r.At)
	if l.IngestionCap != nil && used.Ingestions+r.Items > *l.IngestionCap {
		return fault.New(fault.LimitReached, fault.CodeProjectCapReached,
			"monthly ingestion cap is %d: %d used, request adds %d; raise the cap or send next month",
			*l.IngestionCap, used.Ingestions, r.Items).
			With("cap", capIngestion).With("limit", *l.IngestionCap).With("used", used.Ingestions).With("resetsAt", resets)
	}
	if l.CreditCapTenths != nil && used.ProjectTenths+r.CreditTenths > *l.CreditCapTenths {
		return fault.New(fault.LimitReached, fault.CodeProjectCapReached,
			"monthly credit cap of the project is %s: %s used, request costs %s; raise the cap or send next month",
			Credits(*l.CreditCapTenths), Credits(used.ProjectTenths), Credits(r.CreditTenths)).
			With("cap", capCredit).
			With("limit", Credits(*l.CreditCapTenths)).With("used", Credits(used.ProjectTenths)).With("resetsAt", resets)
	}
	if err := l.RefuseSpending(used, r.CreditTenths, r.At); err != nil {
		return err
	}
	if err := l.RefuseCredits(used, r.CreditTenths); err != nil {
		var resetsOn *string
		if terms.AllowanceTenths > 0 { // else nothing comes back by itself
			day := resets.Format(time.DateOnly)
			resetsOn = &day
		}
		return err.With("resetsOn", resetsOn)
	}
	return nil
}

// RefuseSpending returns spend-cap-reached if the organization may not be charged that much more in
// this month.
func (l Caps) RefuseSpending(used Used, tenths int64, at time.Time) error {
	if l.SpendCapTenths == nil || used.OrganizationTenths+tenths <= *l.SpendCapTenths {
		return nil
	}
	return fault.New(fault.LimitReached, fault.CodeSpendCapReached,
		"monthly spend cap of the organization is %s credits: %s used, request costs %s; raise the cap or send next month",
		Credits(*l.SpendCapTenths), Credits(used.OrganizationTenths), Credits(tenths)).
		With("cap", Credits(*l.SpendCapTenths)).With("spent", Credits(used.OrganizationTenths)).With("resetsAt", MonthEnd(at))
}

// RefuseCredits returns out-of-credits if the plan is metered and its balance does not hold that
// much.
func (l Caps) RefuseCredits(used Used, tenths int64) *fault.Error {
	if !l.Plan.Metered() || tenths <= used.LeftTenths {
		return nil
	}
	return fault.New(fault.PaymentRequired, fault.CodeOutOfCredits,
		"%s credits are left, request costs %s; buy credits or change the plan", Credits(used.LeftTenths), Credits(tenths)).
		With("creditsLeft", Credits(used.LeftTenths)).With("creditsNeeded", Credits(tenths))
}

// MonthEnd returns the end of the UTC calendar month of an instant.
func MonthEnd(at time.Time) time.Time {
	at = at.UTC()
	return time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)
}

// Credits writes tenths of a credit as a decimal number with at most one digit, such as 12 or 12.5.
func Credits(tenths int64) json.Number {
	sign := ""
	if tenths < 0 {
		sign, tenths = "-", -tenths
	}
	text := sign + strconv.FormatInt(tenths/10, 10)
	if tenths%10 != 0 {
		text += "." + strconv.FormatInt(tenths%10, 10)
	}
	return json.Number(text)
}
