package readapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/why"
)

// tracer answers where memory comes from. The fault of a node that the project does not have is
// not-found.
type tracer interface {
	Roots(ctx context.Context, project auth.Project, q why.RootsQuery) (why.Roots, error)
	Node(ctx context.Context, project auth.Project, id uuid.UUID) (why.Node, error)
	// Lineage walks from a root: over all sides, or over those to reveal.
	Lineage(
		ctx context.Context, project auth.Project, root uuid.UUID, all bool, reveal []why.Side, limit int,
	) (why.Lineage, error)
	// Timeline reads a window; nil means the default. Its faults are also invalid-range and
	// range-too-wide.
	Timeline(ctx context.Context, project auth.Project, root uuid.UUID, from, to *instant.Written) (why.Timeline, error)
}

type traceAPI struct {
	queries tracer
}

// roots is GET /api/v1/trace/roots?search=&ingestionId=&first=&afterMemories=&afterSources=.
func (a traceAPI) roots(c echo.Context) error {
	q, err := why.RootsQueryOf(httpx.Query(c))
	if err != nil {
		return err
	}
	found, err := a.queries.Roots(c.Request().Context(), httpx.Principal(c).Project, q)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, rootsView{Memories: rootPageOf(found.Memories), Sources: rootPageOf(found.Sources)})
}

// node is GET /api/v1/trace/nodes/:id.
func (a traceAPI) node(c echo.Context) error {
	id, err := httpx.PathUUID(c, "id")
	if err != nil {
		return err
	}
	found, err := a.queries.Node(c.Request().Context(), httpx.Principal(c).Project, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, nodeViewOf(found))
}

// lineage is GET /api/v1/trace/lineage/:rootId?revealAll=&reveal=&limit=.
func (a traceAPI) lineage(c echo.Context) error {
	root, err := httpx.PathUUID(c, "rootId")
	if err != nil {
		return err
	}
	query, problems := httpx.Query(c), fields.Problems{}
	reveal, err := why.SidesOf(query["reveal"])
	if err != nil {
		return err
	}
	all, err := strconv.ParseBool(query.Get("revealAll"))
	if err != nil && query.Get("revealAll") != "" {
		problems.Add("revealAll", "want true or false, got %.40q", query.Get("revealAll"))
	}
	most := problems.Count("limit", query.Get("limit"), limit.TraceNodes, limit.TraceNodes)
	if err := problems.Err(); err != nil {
		return err
	}
	found, err := a.queries.Lineage(c.Request().Context(), httpx.Principal(c).Project, root, all, reveal, most)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, lineageViewOf(found))
}

// timeline is GET /api/v1/trace/timeline/:rootId?from=&to=.
func (a traceAPI) timeline(c echo.Context) error {
	root, err := httpx.PathUUID(c, "rootId")
	if err != nil {
		return err
	}
	query, problems := httpx.Query(c), fields.Problems{}
	from, to := problems.Instant("from", query.Get("from")), problems.Instant("to", query.Get("to"))
	if err := problems.Err(); err != nil {
		return err
	}
	found, err := a.queries.Timeline(c.Request().Context(), httpx.Principal(c).Project, root, from, to)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, timelineViewOf(found))
}
