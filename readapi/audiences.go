package readapi

import (
	"context"
	"iter"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/directory"
)

// audiences reads the audiences of a project, as of the call. The fault is service-unavailable while that cannot be told.
type audiences interface {
	// Audiences are all of them, the default one first, then by the time of creation. They are read while they are gone through.
	Audiences(ctx context.Context, project auth.Project) iter.Seq2[directory.Audience, error]
	// Audience is the one that a slug names; ok is false where there is none.
	Audience(ctx context.Context, project auth.Project, slug string) (a directory.Audience, ok bool, err error)
}

// audienceList is all audiences of a project.
type audienceList struct {
	Audiences []directory.Audience `json:"audiences"`
}

type audienceAPI struct {
	queries audiences
}

// list is GET /api/v1/audiences.
func (a audienceAPI) list(c echo.Context) error {
	found := a.queries.Audiences(c.Request().Context(), httpx.Principal(c).Project)
	return httpx.StreamSeq(c, audienceList{Audiences: []directory.Audience{}}, "audiences", found)
}

// get is GET /api/v1/audiences/:slug. What no audience can be called is the slug of none: 404 not-found.
func (a audienceAPI) get(c echo.Context) error {
	slug, err := httpx.PathParam(c, "slug")
	if err != nil {
		return err
	}
	found, ok, err := a.queries.Audience(c.Request().Context(), httpx.Principal(c).Project, slug)
	if err != nil {
		return err
	}
	if !ok {
		return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no audience %q", slug)
	}
	return c.JSON(http.StatusOK, found)
}
