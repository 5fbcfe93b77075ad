package readapi

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/directory"
)

// audiences reads the current audiences of a project. The fault is service-unavailable if they
// cannot be read now.
type audiences interface {
	// Audiences returns all audiences, the default one first, then by time of creation. It reads them
	// while the caller iterates.
	Audiences(ctx context.Context, project auth.Project) iter.Seq2[directory.Audience, error]
	// Audience returns the audience with a slug. ok is false if there is none.
	Audience(ctx context.Context, project auth.Project, slug string) (a directory.Audience, ok bool, err error)
}

// audienceList is the JSON of all audiences of a project.
type audienceList struct {
	Audiences []audienceView `json:"audiences"`
}

// audienceView is the JSON of an audience.
type audienceView struct {
	Slug        string        `json:"slug"`
	Name        string        `json:"name"`
	Kind        audience.Kind `json:"kind"`
	MemberCount int64         `json:"memberCount"`
	MemoryCount int64         `json:"memoryCount"`
	// ReachesNobody is true for a named audience without members.
	ReachesNobody bool `json:"reachesNobody"`
	// RecomputedAt is null for the default audience.
	RecomputedAt *time.Time `json:"recomputedAt"`
	CreatedAt    time.Time  `json:"createdAt"`
	// Identities are the members of a fixed audience, null for others.
	Identities []string `json:"identities"`
	// Rule is null for an audience without a rule.
	Rule json.RawMessage `json:"rule"`
}

func audienceViewOf(a directory.Audience) audienceView {
	return audienceView{
		Slug: a.Slug, Name: a.Name, Kind: a.Kind, MemberCount: a.MemberCount, MemoryCount: a.MemoryCount,
		ReachesNobody: a.ReachesNobody, RecomputedAt: a.RecomputedAt, CreatedAt: a.CreatedAt,
		Identities: a.Identities, Rule: a.Rule,
	}
}

// AudienceViews reads an audience as GET /api/v1/audiences/:slug returns it, for writes that return
// the audience that they changed.
type AudienceViews struct{ Queries audiences }

// ViewAudience returns the JSON of an audience; ok is false if the project has none of that slug.
func (v AudienceViews) ViewAudience(
	ctx context.Context, project auth.Project, slug string,
) (view any, ok bool, err error) {
	found, ok, err := v.Queries.Audience(ctx, project, slug)
	return audienceViewOf(found), ok, err
}

type audienceAPI struct {
	queries audiences
}

// list is GET /api/v1/audiences.
func (a audienceAPI) list(c echo.Context) error {
	found := a.queries.Audiences(c.Request().Context(), httpx.Principal(c).Project)
	views := func(yield func(audienceView, error) bool) {
		for one, err := range found {
			if !yield(audienceViewOf(one), err) {
				return
			}
		}
	}
	return httpx.StreamSeq(c, audienceList{Audiences: []audienceView{}}, "audiences", views)
}

// get is GET /api/v1/audiences/:slug. What no audience can be called is the slug of none: 404
// not-found.
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
	return c.JSON(http.StatusOK, audienceViewOf(found))
}
