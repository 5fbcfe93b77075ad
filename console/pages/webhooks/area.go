// Package webhooks is the pages of the webhooks of a project: their settings with a dry run, and the log of
// their events.
package webhooks

import (
	"context"
	"embed"
	"net/http"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/calls"
)

//go:embed *.html
var templates embed.FS

// commander changes webhooks, and tries their settings.
type commander interface {
	CreateWebhook(ctx context.Context, call commands.Call, settings webhook.Settings) (commands.WebhookReceipt, error)
	ChangeWebhook(ctx context.Context, call commands.Call, id string, settings webhook.Settings) error
	SetWebhookPaused(ctx context.Context, call commands.Call, id string, paused bool) error
	RotateWebhookToken(ctx context.Context, call commands.Call, id string) (commands.WebhookReceipt, error)
	DeleteWebhook(ctx context.Context, call commands.Call, id string) error
	TryEvent(ctx context.Context, call commands.Call, s webhook.Settings, body []byte) (tenants.TriedEvent, error)
}

// Deps are what the pages read and change.
type Deps struct {
	Commands commander
	Webhooks interface {
		Webhooks(ctx context.Context, project auth.Project) ([]access.Webhook, error)
		WebhookOf(ctx context.Context, project auth.Project, id string) (access.Webhook, auth.Principal, bool, error)
	}
	// URLs reveals the URL of a webhook, "" if its token cannot be opened.
	URLs interface {
		Reveal(ctx context.Context, of access.Webhook) (string, error)
	}
	Audiences interface {
		KnownAudiences(ctx context.Context, project auth.Project, slugs []string) (map[string]bool, error)
	}
	Calls calls.Queries
	// API receives the events that a person sends.
	API   httpx.Inner
	Plans metering.PlanTerms
}

// formBytes is the most bytes of a form with a sample: 1 MiB may be percent-encoded.
const formBytes = 4 << 20

// Area returns the pages.
func Area(d Deps) web.Area {
	area := web.Area{Templates: templates}
	add := func(pattern string, needs web.Needs, body int64, serve func(*web.Request) error) {
		method, path := http.MethodGet, "/p/{project}/webhooks"+pattern
		if body > 0 {
			method = http.MethodPost
		}
		area.Routes = append(area.Routes, web.Route{Pattern: method + " " + path, Needs: needs, Body: body, Serve: serve})
	}
	const small = 64 << 10
	add("", web.Read, 0, d.list)
	add("/new", web.Write, 0, d.show)
	add("/{webhook}", web.Read, 0, d.show)
	add("/{webhook}", web.Write, formBytes, d.save)
	add("/{webhook}/try", web.Write, formBytes, d.try)
	add("/{webhook}/test", web.Write, formBytes, d.test)
	add("/{webhook}/pause", web.Write, small, d.pause)
	add("/{webhook}/rotate", web.Write, small, d.rotate)
	add("/{webhook}/delete", web.Write, small, d.remove)
	add("/{webhook}/events", web.Read, 0, d.events)
	add("/{webhook}/events/{request}", web.Read, 0, d.event)
	add("/{webhook}/events/{request}/body", web.Read, 0, d.body)
	add("/{webhook}/events/{request}/replay", web.Write, small, d.replay)
	return area
}

// find finds the webhook of the path, with the principal of its events.
func (d Deps) find(r *web.Request) (access.Webhook, auth.Principal, error) {
	w, caller, ok, err := d.Webhooks.WebhookOf(r.Context(), r.Project.Project, r.PathValue("webhook"))
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such webhook in this project")
	}
	return w, caller, err
}

// pathOf is the page of a webhook, or a page below it.
func pathOf(r *web.Request, parts ...string) string {
	return r.ProjectPath(append([]string{"webhooks"}, parts...)...)
}
