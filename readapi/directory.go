package readapi

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/cursor"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/directory"
)

// defaultIdentities is the size of a page of identities. A size beyond limit.IdentityPage is
// lowered to it.
const defaultIdentities = 100

// identities reads the directory of a project. The fault is service-unavailable if it cannot be
// read now.
type identities interface {
	// Identities returns a list of records, newest first, as of the call.
	Identities(ctx context.Context, project auth.Project, l directory.Listing) (directory.Identities, error)
	// Identity returns a record with its audiences. ok is false if there is none.
	Identity(ctx context.Context, project auth.Project, name string) (i directory.Identity, ok bool, err error)
}

// identityList is the JSON of a list of identities. EndCursor is null if it is empty.
type identityList struct {
	Identities []identityView `json:"identities"`
	HasMore    bool           `json:"hasMore"`
	EndCursor  *string        `json:"endCursor"`
}

// identityView is the JSON of an identity record.
type identityView struct {
	Identity string          `json:"identity"`
	Traits   json.RawMessage `json:"traits"`
	Origin   string          `json:"origin"`
	// LastSeenAt is null if the identity was not seen since its record was created.
	LastSeenAt *time.Time `json:"lastSeenAt"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"updatedAt"`
	// Audiences are the slugs of its named audiences; null in a list.
	Audiences []string `json:"audiences"`
}

func identityViewOf(i directory.Identity) identityView {
	return identityView{
		Identity: i.Identity, Traits: i.Traits, Origin: i.Origin, LastSeenAt: i.LastSeenAt,
		CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt, Audiences: i.Audiences,
	}
}

type identityAPI struct {
	queries identities
}

// list is GET /api/v1/identities?after=&limit=&traitKey=&traitValue=: newest first. A limit that
// is out of range is clamped; a cursor that is none, a limit that is no integer, traitValue
// without traitKey, and a key or value that no trait can have are invalid-request.
func (a identityAPI) list(c echo.Context) error {
	listing, err := listingOf(httpx.Query(c))
	if err != nil {
		return err
	}
	page, err := a.queries.Identities(c.Request().Context(), httpx.Principal(c).Project, listing)
	if err != nil {
		return err
	}
	answer := identityList{Identities: []identityView{}, HasMore: page.More}
	if page.End != nil {
		end := cursor.Cursor{At: page.End.CreatedAt, ID: page.End.ID}.String()
		answer.EndCursor = &end
	}
	views := make([]identityView, len(page.List))
	for n, i := range page.List {
		views[n] = identityViewOf(i)
	}
	return httpx.Stream(c, answer, "identities", views)
}

// get is GET /api/v1/identities/:identity.
func (a identityAPI) get(c echo.Context) error {
	name, err := httpx.PathParam(c, "identity")
	if err != nil {
		return err
	}
	httpx.NoteOf(c).Identity = name
	found, ok, err := a.queries.Identity(c.Request().Context(), httpx.Principal(c).Project, name)
	if err != nil {
		return err
	}
	if !ok {
		return fault.New(fault.NotFound, fault.CodeNotFound, "the project has no identity of that name")
	}
	if found.Audiences == nil {
		found.Audiences = []string{}
	}
	return c.JSON(http.StatusOK, identityViewOf(found))
}

func listingOf(query url.Values) (directory.Listing, error) {
	var problems fields.Problems
	listing := directory.Listing{Limit: limitOf(query, &problems)}
	if after := problems.Cursor("after", query.Get("after"), "identities"); after != nil {
		listing.After = &directory.Cursor{CreatedAt: after.At, ID: after.ID}
	}
	if query.Has("traitKey") {
		listing.Key = query.Get("traitKey")
		problems.CheckParameter("traitKey", listing.Key, limit.TraitKey)
	}
	if query.Has("traitValue") {
		value := query.Get("traitValue")
		problems.CheckParameter("traitValue", value, limit.TraitValue)
		listing.Value = &value
		if !query.Has("traitKey") {
			problems.Add("traitValue", "is the value of a trait: name it with traitKey")
		}
	}
	return listing, problems.Err()
}

// limitOf returns the limit of a list, clamped.
func limitOf(query url.Values, problems *fields.Problems) int {
	text := query.Get("limit")
	if text == "" {
		return defaultIdentities
	}
	count, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(text, "-"):
		count = limit.IdentityPage
	case err != nil && !errors.Is(err, strconv.ErrRange):
		problems.Add("limit", "want an integer, got %.40q", text)
	}
	return min(max(count, 1), limit.IdentityPage)
}

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
