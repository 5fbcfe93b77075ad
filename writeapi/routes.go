// Package writeapi has the routes of the API that change state. Each decodes the request, runs one
// command and answers with one status.
package writeapi

import (
	"context"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

// ingester ingests data points. A key of "" is none.
type ingester interface {
	Ingest(ctx context.Context, call engine.Call, in ingest.DataPoint, key string) (ingest.Receipt, error)
	IngestBatch(
		ctx context.Context, call engine.Call, items []ingest.DataPoint, key string,
	) (ingest.BatchReceipt, error)
	Retry(ctx context.Context, call engine.Call, id uuid.UUID) error
}

// deleter deletes what was sent, by send or by source id. The ids are checked and distinct, in the
// order sent.
type deleter interface {
	DeleteSend(ctx context.Context, call engine.Call, id uuid.UUID) error
	DeleteDataPoints(ctx context.Context, call engine.Call, ids []string) (ingest.DeletionReceipt, error)
}

// administrator changes the projects and keys of an organization.
type administrator interface {
	CreateProject(ctx context.Context, call engine.Call, name string) (tenancy.ProjectReceipt, error)
	CreateKey(ctx context.Context, call engine.Call, slug, name string) (tenancy.KeyReceipt, error)
	RevokeKey(ctx context.Context, call engine.Call, slug, keyID string) error
}

// Deps are the commands that the routes run.
type Deps struct {
	Ingest   ingester
	Delete   deleter
	Projects administrator
	// Audiences are changed by commands and shown by a query.
	Audiences     audienceCommands
	AudienceViews audienceViewer
	// Identities are changed by commands. LastSeen returns when they were last seen.
	Identities identityCommands
	LastSeen   lastSeenReader
	Events     eventReceiver
}

// Register adds the routes to a router of httpx.New.
func Register(e *echo.Echo, d Deps) {
	sends := ingestAPI{d.Ingest}
	e.POST(auth.Prefix+"/ingest", sends.single)
	e.POST(auth.Prefix+"/ingest/batch", sends.batch)
	e.POST(auth.Prefix+"/ingest/:ingestionId/retry", sends.retry)

	deletion := deletionAPI{d.Delete}
	e.DELETE(auth.Prefix+"/ingest/:ingestionId", deletion.send)
	e.DELETE(auth.Prefix+"/data-points/:sourceId", deletion.one)
	e.POST(auth.Prefix+"/data-points/delete", deletion.bulk)

	audiences := audienceAPI{d.Audiences, d.AudienceViews}
	e.PUT(auth.Prefix+"/audiences/:slug", audiences.put)
	e.DELETE(auth.Prefix+"/audiences/:slug", audiences.remove)
	e.POST(auth.Prefix+"/audiences/:slug/recompute", audiences.recompute)

	identities := identityAPI{d.Identities, d.LastSeen}
	e.PUT(auth.Prefix+"/identities/:identity", identities.put)
	e.PATCH(auth.Prefix+"/identities/:identity", identities.patch)
	e.DELETE(auth.Prefix+"/identities/:identity", identities.remove)
	e.POST(auth.Prefix+"/identities/bulk", identities.bulk)

	events := webhookAPI{d.Events}
	e.POST(auth.Prefix+"/webhooks/:webhookId/:token", events.receive)

	projects := projectAPI{d.Projects}
	e.POST(auth.Prefix+"/projects", projects.create)
	e.POST(auth.Prefix+"/projects/:slug/keys", projects.createKey)
	e.DELETE(auth.Prefix+"/projects/:slug/keys/:keyId", projects.revokeKey)
}

// callOf returns the call of a request, for its command.
func callOf(c echo.Context) engine.Call {
	inner := httpx.InnerOf(c)
	return engine.Call{
		Principal: httpx.Principal(c), RequestID: httpx.RequestID(c), ReceivedAt: httpx.ReceivedAt(c),
		Own: inner.Own, KeepsAudience: inner.KeepAudience, PrivateIfNew: inner.PrivateIfNew,
		Placed: inner.Placed,
	}
}
