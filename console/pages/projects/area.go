// Package projects is the pages of projects: the list, the overview, keys and caps.
package projects

import (
	"context"
	"embed"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/projections/access"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	Access interface {
		Projects(ctx context.Context, organizationID uuid.UUID) ([]access.Project, error)
	}
}

// Area returns the pages.
func Area(d Deps) web.Area {
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /{$}", Needs: web.Member, Serve: d.list},
	}}
}
