package readapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

// usageMonth is the JSON of a month. To is the first instant after it. ResetsAt is To if something resets
// then, else null.
type usageMonth struct {
	From     time.Time  `json:"from"`
	To       time.Time  `json:"to"`
	ResetsAt *time.Time `json:"resetsAt"`
}

// usageBalance is the JSON of the credits of the organization, all null without metering. Credits have at most one
// decimal digit.
type usageBalance struct {
	Left       *json.Number `json:"left"`
	Included   *json.Number `json:"included"`
	Bought     *json.Number `json:"bought"`
	RolledOver *json.Number `json:"rolledOver"`
	Spent      *json.Number `json:"spent"`
}

// usageProject is the JSON of what a project used in the month, and its caps. Caps and what is left of them are
// null if they are not set. They are shown also without metering, which makes Credits null.
type usageProject struct {
	Slug             string       `json:"slug"`
	Credits          *json.Number `json:"credits"`
	Ingestions       int64        `json:"ingestions"`
	Recalls          int64        `json:"recalls"`
	CreditCap        *json.Number `json:"creditCap"`
	CreditCapLeft    *json.Number `json:"creditCapLeft"`
	IngestionCap     *int64       `json:"ingestionCap"`
	IngestionCapLeft *int64       `json:"ingestionCapLeft"`
}

// projectAnswer is the JSON for a project key.
type projectAnswer struct {
	Month   usageMonth   `json:"month"`
	Balance usageBalance `json:"balance"`
	Project usageProject `json:"project"`
	Metered bool         `json:"metered"`
}

// organizationAnswer is the JSON for a management key.
type organizationAnswer struct {
	Month    usageMonth     `json:"month"`
	Balance  cappedBalance  `json:"balance"`
	Projects []usageProject `json:"projects"`
	Metered  bool           `json:"metered"`
}

// cappedBalance is a balance with the spend cap of the organization.
type cappedBalance struct {
	usageBalance
	SpendCap *json.Number `json:"spendCap"`
}

type usageAPI struct {
	queries usages
}

// get is GET /api/v1/usage.
func (a usageAPI) get(c echo.Context) error {
	principal := httpx.Principal(c)
	u, err := a.queries.Usage(c.Request().Context(), principal, httpx.ReceivedAt(c))
	if err != nil {
		return err
	}
	month, balance := usageMonth(u.Month), balanceOf(u.Balance)
	projects := make([]usageProject, len(u.Projects))
	for i, p := range u.Projects {
		projects[i] = usageProject{
			Slug: p.Slug, Credits: credits(p.ChargedTenths), Ingestions: p.Used.Ingestions, Recalls: p.Used.Recalls,
			CreditCap: credits(p.CreditCapTenths), CreditCapLeft: credits(p.CreditCapLeftTenths()),
			IngestionCap: p.IngestionCap, IngestionCapLeft: p.IngestionCapLeft(),
		}
	}
	if principal.Kind != auth.ManagementKey {
		return c.JSON(http.StatusOK, projectAnswer{month, balance, projects[0], u.Metered()})
	}
	return c.JSON(http.StatusOK,
		organizationAnswer{month, cappedBalance{balance, credits(u.SpendCapTenths)}, projects, u.Metered()})
}

// balanceOf returns the credits of a metered plan, and only nulls without metering.
func balanceOf(b metering.Balance) usageBalance {
	if !b.Plan.Metered() {
		return usageBalance{}
	}
	return usageBalance{
		Left: credits(new(b.LeftTenths())), Included: credits(&b.IncludedTenths), Bought: credits(&b.BoughtTenths),
		RolledOver: credits(&b.RolledOverTenths), Spent: credits(&b.SpentTenths),
	}
}

// credits returns tenths of a credit as a decimal number, nil for nil.
func credits(tenths *int64) *json.Number {
	if tenths == nil {
		return nil
	}
	return new(metering.Credits(*tenths))
}
