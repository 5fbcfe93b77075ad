package metering

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
)

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
