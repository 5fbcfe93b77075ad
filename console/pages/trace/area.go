// Package trace is the pages that answer where something comes from and what became of it: the request log, and the
// nodes of trace with their lineage and timeline.
package trace

import (
	"context"
	"embed"
	"net/url"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/svg"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/why"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read.
type Deps struct {
	Calls   why.Calls
	Explain why.Explainer
	Trace   *why.Trace
	// Names finds the names of people. Who is removed is not in it.
	Names interface {
		Names(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error)
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
		auditors := web.AuditedTexts
		if path == "requests" {
			auditors = web.Audited // the list has no texts
		}
		routes = append(routes, web.Route{
			Pattern: "GET /p/{project}/" + path, Needs: web.Read, Auditors: auditors, Serve: serve,
		})
	}
	return web.Area{Templates: templates, Routes: routes}
}

// The messages of these pages that are in no template.
const (
	noSuch      = "the project has nothing with the id %.60q"
	noBody      = "the bodies of this call are not stored, or no longer"
	callsByTime = "Calls by time"
	lineageOf   = "Lineage of %s"
	timelineOf  = "Timeline of %s"
	moreNodes   = "%d more"
	moreInputs  = "inputs +%d"
	moreOutputs = "outputs +%d"
	callTime    = "Time"
)

var (
	timelineRows = []string{"Occurred", "Arrived", "Searchable", "Recalled"}
	outcomes     = []svg.Series{
		{Name: "accepted", Class: "good"}, {Name: "failed later", Class: "warn"}, {Name: "rejected", Class: "bad"},
	}
)

// id reads an id of the path.
func id(r *web.Request, name string) (uuid.UUID, error) {
	text := r.PathValue(name)
	parsed, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, fault.New(fault.NotFound, fault.CodeNotFound, noSuch, text)
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
