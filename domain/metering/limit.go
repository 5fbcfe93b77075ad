package metering

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
)

// Reservation is what a send takes of the limits of its project and its organization before it is committed.
type Reservation struct {
	OrganizationID uuid.UUID
	ProjectID      uuid.UUID
	// SendID is the send that it becomes a fact with. Try tells tries of the same send apart, which an idempotency key may have several of at once.
	SendID, Try uuid.UUID
	Limits      Limits
	// At is the time of the request, which says what month it counts in.
	At time.Time
	// Items are the data points that get a revision, for CreditTenths in all.
	Items        int64
	CreditTenths int64
}

// Used is what was taken already: facts, and what others have reserved.
type Used struct {
	// Ingestions and ProjectTenths are those of the project in the month, OrganizationTenths those of all projects of the organization.
	Ingestions         int64
	ProjectTenths      int64
	OrganizationTenths int64
	// LeftTenths is what is left of the balance; it counts for nothing where the plan is not metered.
	LeftTenths int64
}

// Bind reports whether anything bounds what is ingested: where nothing does, nothing is to be reserved.
func (l Limits) Bind() bool {
	return l.Plan.Metered() || l.SpendCapTenths != nil || l.IngestionCap != nil || l.CreditCapTenths != nil
}

// Names of caps of a project, in the data of a refusal.
const (
	capIngestion = "ingestion"
	capCredit    = "credit"
)

// Refuse is nil where the limits leave what is asked for. Its faults are, in the order in which they are looked for,
// project-cap-reached, spend-cap-reached and out-of-credits. The terms are those of the plan.
func (r Reservation) Refuse(used Used, terms Terms) error {
	l := r.Limits
	resets := MonthEnd(r.At)
	if l.IngestionCap != nil && used.Ingestions+r.Items > *l.IngestionCap {
		return fault.New(fault.LimitReached, fault.CodeProjectCapReached, "the project takes %d data points a month; %d are taken, and this brings %d",
			*l.IngestionCap, used.Ingestions, r.Items).
			With("cap", capIngestion).With("limit", *l.IngestionCap).With("used", used.Ingestions).With("resetsAt", resets)
	}
	if l.CreditCapTenths != nil && used.ProjectTenths+r.CreditTenths > *l.CreditCapTenths {
		return fault.New(fault.LimitReached, fault.CodeProjectCapReached, "the project spends %s credits a month; %s are spent, and this costs %s",
			Credits(*l.CreditCapTenths), Credits(used.ProjectTenths), Credits(r.CreditTenths)).
			With("cap", capCredit).With("limit", Credits(*l.CreditCapTenths)).With("used", Credits(used.ProjectTenths)).With("resetsAt", resets)
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

// RefuseSpending is spend-cap-reached where the organization may not be charged so much more this month.
func (l Limits) RefuseSpending(used Used, tenths int64, at time.Time) error {
	if l.SpendCapTenths == nil || used.OrganizationTenths+tenths <= *l.SpendCapTenths {
		return nil
	}
	return fault.New(fault.LimitReached, fault.CodeSpendCapReached, "the organization spends %s credits a month; %s are spent, and this costs %s",
		Credits(*l.SpendCapTenths), Credits(used.OrganizationTenths), Credits(tenths)).
		With("cap", Credits(*l.SpendCapTenths)).With("spent", Credits(used.OrganizationTenths)).With("resetsAt", MonthEnd(at))
}

// RefuseCredits is out-of-credits where the plan is metered and its balance does not hold so much; nil otherwise.
func (l Limits) RefuseCredits(used Used, tenths int64) *fault.Error {
	if !l.Plan.Metered() || tenths <= used.LeftTenths {
		return nil
	}
	return fault.New(fault.PaymentRequired, fault.CodeOutOfCredits, "%s credits are left, and this costs %s", Credits(used.LeftTenths), Credits(tenths)).
		With("creditsLeft", Credits(used.LeftTenths)).With("creditsNeeded", Credits(tenths))
}

// MonthEnd is when the UTC calendar month of an instant ends, which is when the next begins.
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
