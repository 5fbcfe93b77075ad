// Package trace is the pages that answer where something comes from and what became of it: the request log, and the
// nodes of trace with their lineage and timeline.
package trace

import (
	"context"
	"embed"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/calls"
	"github.com/annals-project/annals/projections/explain"
	"github.com/annals-project/annals/projections/trace"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read.
type Deps struct {
	Calls interface {
		List(ctx context.Context, project auth.Project, q requestlog.Query) (calls.Page, error)
		Histogram(ctx context.Context, project auth.Project, q requestlog.Query) (requestlog.Histogram, error)
		Get(ctx context.Context, project auth.Project, requestID uuid.UUID, at time.Time) (calls.Detail, error)
	}
	Explain interface {
		Explain(ctx context.Context, project auth.Project, id uuid.UUID) (explain.Explanation, error)
	}
	Trace interface {
		Roots(ctx context.Context, project auth.Project, q trace.RootsQuery) (trace.Roots, error)
		Node(ctx context.Context, project auth.Project, id uuid.UUID) (trace.Node, error)
		Lineage(
			ctx context.Context, project auth.Project, root uuid.UUID, all bool, reveal []trace.Side, limit int,
		) (trace.Lineage, error)
		Timeline(
			ctx context.Context, project auth.Project, root uuid.UUID, from, to *instant.Written,
		) (trace.Timeline, error)
	}
}

// Area returns the pages.
func Area(d Deps) web.Area {
	routes := []web.Route{}
	for path, serve := range map[string]func(*web.Request) error{
		"requests": d.requests, "requests/{request}": d.request, "requests/{request}/{body}": d.body,
		"trace": d.roots, "trace/{node}": d.node, "trace/{node}/lineage": d.lineage,
		"trace/{node}/timeline": d.timeline,
	} {
		routes = append(routes, web.Route{Pattern: "GET /p/{project}/" + path, Needs: web.Read, Serve: serve})
	}
	return web.Area{Templates: templates, Routes: routes}
}

// words are the messages of these pages that are in no template.
var words = struct {
	noSuch, noBody, calls, when, accepted, failedLater, rejected, lineage, more, inputs, outputs, timeline string
	occurred, arrived, searchable, recalled                                                                string
}{
	noSuch: "the project has nothing with the id %.60q", noBody: "the bodies of this call are not stored, or no longer",
	calls: "Calls by time", when: "Time", accepted: "accepted", failedLater: "failed later", rejected: "rejected",
	lineage: "Lineage of %s", more: "%d more", inputs: "inputs +%d", outputs: "outputs +%d", timeline: "Timeline of %s",
	occurred: "Occurred", arrived: "Arrived", searchable: "Searchable", recalled: "Recalled",
}

// id reads an id of the path.
func id(r *web.Request, name string) (uuid.UUID, error) {
	text := r.PathValue(name)
	parsed, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, fault.New(fault.NotFound, fault.CodeNotFound, words.noSuch, text)
	}
	return parsed, nil
}

// filled returns the parameters of the query that are not empty: a form sends all its fields.
func filled(r *web.Request) url.Values {
	query := r.URL.Query()
	for name, values := range query {
		if len(values) == 1 && values[0] == "" {
			delete(query, name)
		}
	}
	return query
}
