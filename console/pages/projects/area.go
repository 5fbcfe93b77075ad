// Package projects is the pages of projects: the list, the overview, keys and caps.
package projects

import (
	"context"
	"embed"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/calls"
	"github.com/annals-project/annals/projections/datapoints"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	// APIURL is the public address of the API, for commands to copy.
	APIURL   string
	Accounts interface {
		Projects(ctx context.Context, organization uuid.UUID) ([]account.Project, error)
		Project(ctx context.Context, organization, id uuid.UUID) (account.Project, bool, error)
	}
	Keys interface {
		Keys(ctx context.Context, project uuid.UUID) ([]tenants.Key, error)
	}
	Uses interface {
		LastUses(ctx context.Context, project uuid.UUID) (map[requestlog.Key]time.Time, error)
	}
	Sends interface {
		Readiness(ctx context.Context, project auth.Project) (datapoints.Readiness, error)
	}
	Calls interface {
		List(ctx context.Context, project auth.Project, query requestlog.Query) (calls.Page, error)
	}
	// Projections is how far each projection is.
	Projections func() []condition.Projection
	Commands    interface {
		CreateProject(ctx context.Context, call commands.Call, name string) (commands.ProjectReceipt, error)
		DescribeProject(ctx context.Context, call commands.Call, slug, name, description string) error
		SetArchived(ctx context.Context, call commands.Call, org, slug string, archived bool) (tenants.Project, error)
		SetCaps(ctx context.Context, call commands.Call, org, slug string, c commands.Caps) (tenants.Project, error)
		CreateKey(ctx context.Context, call commands.Call, slug, name string) (commands.KeyReceipt, error)
		RevealKey(ctx context.Context, call commands.Call, slug, keyID string) (string, error)
		RevokeKey(ctx context.Context, call commands.Call, slug, keyID string) error
	}
}

// Area returns the pages.
func Area(d Deps) web.Area {
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /{$}", Needs: web.Member, Serve: d.list},
		{Pattern: "POST /{$}", Needs: web.Admin, Serve: d.create},
		{Pattern: "GET /p/{project}", Needs: web.Read, Serve: d.overview},
		{Pattern: "POST /p/{project}", Needs: web.Manage, Serve: d.describe},
		{Pattern: "POST /p/{project}/archived", Needs: web.Manage, Serve: d.archive},
		{Pattern: "GET /p/{project}/caps", Needs: web.Manage, Serve: d.caps},
		{Pattern: "POST /p/{project}/caps", Needs: web.Manage, Serve: d.setCaps},
		{Pattern: "GET /p/{project}/keys", Needs: web.Manage, Serve: d.keys},
		{Pattern: "POST /p/{project}/keys", Needs: web.Manage, Serve: d.createKey},
		{Pattern: "GET /p/{project}/keys/{key}", Needs: web.Manage, Serve: d.key},
		{Pattern: "POST /p/{project}/keys/{key}/reveal", Needs: web.Manage, Serve: d.reveal},
		{Pattern: "POST /p/{project}/keys/{key}/revoke", Needs: web.Manage, Serve: d.revoke},
	}}
}
