package readapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

// Usage is what an organization has and used in a UTC calendar month. Credits have at most one
// decimal digit. Without metering they are null, except caps and what is left of them, which
// always apply.
type Usage struct {
	Month   UsageMonth
	Balance Balance
	// SpendCap is nil without a cap.
	SpendCap *json.Number
	Metered  bool
	// Projects are one project for a project key, or the live projects of the organization for a
	// management key, the highest charges first.
	Projects []ProjectUsage
}

// UsageMonth is the month. To is the first instant after it. ResetsAt is To if something resets
// then, else null.
type UsageMonth struct {
	From     time.Time  `json:"from"`
	To       time.Time  `json:"to"`
	ResetsAt *time.Time `json:"resetsAt"`
}

// Balance is the credits of the organization, all null without metering.
type Balance struct {
	Left       *json.Number `json:"left"`
	Included   *json.Number `json:"included"`
	Bought     *json.Number `json:"bought"`
	RolledOver *json.Number `json:"rolledOver"`
	Spent      *json.Number `json:"spent"`
}

// ProjectUsage is what a project used in the month, and its caps. Caps and what is left of them are
// null if they are not set.
type ProjectUsage struct {
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
	Month   UsageMonth   `json:"month"`
	Balance Balance      `json:"balance"`
	Project ProjectUsage `json:"project"`
	Metered bool         `json:"metered"`
}

// organizationAnswer is the JSON for a management key.
type organizationAnswer struct {
	Month    UsageMonth     `json:"month"`
	Balance  cappedBalance  `json:"balance"`
	Projects []ProjectUsage `json:"projects"`
	Metered  bool           `json:"metered"`
}

// cappedBalance is a balance with the spend cap of the organization.
type cappedBalance struct {
	Balance
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
	if principal.Kind != auth.ManagementKey {
		return c.JSON(http.StatusOK,
			projectAnswer{Month: u.Month, Balance: u.Balance, Project: u.Projects[0], Metered: u.Metered})
	}
	if u.Projects == nil {
		u.Projects = []ProjectUsage{}
	}
	return c.JSON(http.StatusOK, organizationAnswer{
		Month: u.Month, Balance: cappedBalance{u.Balance, u.SpendCap}, Projects: u.Projects, Metered: u.Metered,
	})
}
