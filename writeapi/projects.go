package writeapi

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
)

type projectAPI struct {
	commands administrator
}

// newProject is a project in the answer of its creation: empty, live, without caps.
type newProject struct {
	Slug            string    `json:"slug"`
	Name            string    `json:"name"`
	Description     string    `json:"description"`
	IsArchived      bool      `json:"isArchived"`
	MemoryCount     int64     `json:"memoryCount"`
	IngestionCap    *int64    `json:"ingestionCap"`
	MonthIngestions int64     `json:"monthIngestions"`
	CreditCap       *float64  `json:"creditCap"`
	MonthCredits    *float64  `json:"monthCredits"`
	CreatedAt       time.Time `json:"createdAt"`
}

// create is POST /api/v1/projects.
func (a projectAPI) create(c echo.Context) error {
	name, err := nameOf(c)
	if err != nil {
		return err
	}
	if name == nil || !project.ValidName(*name) {
		return fault.New(fault.Invalid, fault.CodeProjectNameInvalid,
			"name is required: up to %d characters, at least two of them letters or digits", limit.ProjectName)
	}
	receipt, err := a.commands.CreateProject(c.Request().Context(), callOf(c), *name)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, projectOf(receipt))
}

// projectOf returns a new project. Its credits are null if none are counted.
func projectOf(r tenancy.ProjectReceipt) newProject {
	p := newProject{Slug: r.Slug, Name: r.Name, CreatedAt: r.CreatedAt}
	if r.Metered {
		p.MonthCredits = new(float64)
	}
	return p
}

// createKey is POST /api/v1/projects/:slug/keys.
func (a projectAPI) createKey(c echo.Context) error {
	slug, err := httpx.PathParam(c, "slug")
	if err != nil {
		return err
	}
	name, err := nameOf(c)
	if err != nil {
		return err
	}
	if name == nil || fields.CheckName(*name, 1, limit.KeyName) != nil {
		return fault.New(fault.Invalid, fault.CodeKeyNameInvalid, "name is required: 1 to %d characters", limit.KeyName)
	}
	receipt, err := a.commands.CreateKey(c.Request().Context(), callOf(c), slug, *name)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, client.ProjectKey(receipt))
}

// revokeKey is DELETE /api/v1/projects/:slug/keys/:keyId.
func (a projectAPI) revokeKey(c echo.Context) error {
	slug, err := httpx.PathParam(c, "slug")
	if err != nil {
		return err
	}
	keyID, err := httpx.PathParam(c, "keyId")
	if err != nil {
		return err
	}
	if err := a.commands.RevokeKey(c.Request().Context(), callOf(c), slug, keyID); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// nameNames are the names of a new project or key.
var nameNames = fields.NewNames("name")

// nameOf reads the only field of a body, nil if it is omitted. The fault is invalid-request for a
// name of another type.
func nameOf(c echo.Context) (*string, error) {
	return httpx.Decode(c, httpx.SmallLimit, nameNames, func(f fields.Object) (*string, error) {
		return f.Text("name"), nil
	})
}
