package readapi

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

// projectAnswer is the JSON for a project key.
type projectAnswer struct {
	Month   client.UsageMonth   `json:"month"`
	Balance client.UsageBalance `json:"balance"`
	Project client.ProjectUsage `json:"project"`
	Metered bool                `json:"metered"`
}

// organizationAnswer is the JSON for a management key.
type organizationAnswer struct {
	Month    client.UsageMonth     `json:"month"`
	Balance  cappedBalance         `json:"balance"`
	Projects []client.ProjectUsage `json:"projects"`
	Metered  bool                  `json:"metered"`
}

// cappedBalance is a balance with the spend cap of the organization, null for none. Its field hides the one of the
// balance, which is omitted if it is null.
type cappedBalance struct {
	client.UsageBalance
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
	month, balance := client.UsageMonth(u.Month), balanceOf(u.Balance)
	projects := make([]client.ProjectUsage, len(u.Projects))
	for i, p := range u.Projects {
		projects[i] = client.ProjectUsage{
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
func balanceOf(b metering.Balance) client.UsageBalance {
	if !b.Plan.Metered() {
		return client.UsageBalance{}
	}
	return client.UsageBalance{
		Left: credits(new(b.LeftTenths())), Included: credits(&b.IncludedTenths), Bought: credits(&b.BoughtTenths),
		RolledOver: credits(&b.RolledOverTenths), Spent: credits(&b.SpentTenths),
	}
}

// credits returns tenths of a credit as a number with at most one decimal digit, nil for nil.
func credits(tenths *int64) *json.Number {
	if tenths == nil {
		return nil
	}
	return new(metering.Credits(*tenths))
}
