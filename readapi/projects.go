package readapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/httpx"
)

// projectView is the JSON of a project with what it holds and used. Caps are null if they are not set. Credits are
// null without metering.
type projectView struct {
	Slug            string       `json:"slug"`
	Name            string       `json:"name"`
	Description     string       `json:"description"`
	IsArchived      bool         `json:"isArchived"`
	MemoryCount     int64        `json:"memoryCount"`
	IngestionCap    *int64       `json:"ingestionCap"`
	MonthIngestions int64        `json:"monthIngestions"`
	CreditCap       *json.Number `json:"creditCap"`
	MonthCredits    *json.Number `json:"monthCredits"`
	CreatedAt       time.Time    `json:"createdAt"`
}

// projectList is all projects of an organization.
type projectList struct {
	Projects []projectView `json:"projects"`
}

type projectAPI struct {
	queries projects
}

// list is GET /api/v1/projects.
func (a projectAPI) list(c echo.Context) error {
	found, err := a.queries.Projects(c.Request().Context(), httpx.Principal(c).OrganizationID)
	if err != nil {
		return err
	}
	views := make([]projectView, len(found))
	for i, p := range found {
		views[i] = projectView{
			Slug: p.Slug, Name: p.Name, Description: p.Description, IsArchived: p.Archived, MemoryCount: p.MemoryCount,
			IngestionCap: p.IngestionCap, MonthIngestions: p.Used.Ingestions,
			CreditCap: credits(p.CreditCapTenths), MonthCredits: credits(p.ChargedTenths), CreatedAt: p.CreatedAt,
		}
	}
	return c.JSON(http.StatusOK, projectList{Projects: views})
}
