package readapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/tenants"
)

// projectList is all projects of an organization.
type projectList struct {
	Projects []tenants.ProjectUse `json:"projects"`
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
	views := make([]tenants.ProjectUse, len(found))
	for i, p := range found {
		views[i] = p.View()
	}
	return c.JSON(http.StatusOK, projectList{Projects: views})
}
