package operatorapi

import (
	"context"
	"net/http"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
)

// The operations on webhooks.
var (
	CreateWebhook = webhookOperation[tenants.Webhook]("create")
	ListWebhooks  = webhookOperation[[]tenants.Webhook]("list")
	ShowWebhook   = webhookOperation[tenants.Webhook]("show")
	ChangeWebhook = webhookOperation[tenants.Webhook]("change")
	PauseWebhook  = webhookOperation[tenants.Webhook]("pause")
	RotateWebhook = webhookOperation[tenants.Webhook]("rotate-token")
	DeleteWebhook = webhookOperation[tenants.Webhook]("delete")
	TryWebhook    = webhookOperation[tenants.TriedEvent]("try")
)

func webhookOperation[Out any](path string) Operation[WebhookRequest, Out] {
	return Operation[WebhookRequest, Out]{http.MethodPost, "/operator/webhooks/" + path}
}

// WebhookRequest names a webhook by ID, or a project for a new one and for a list.
type WebhookRequest struct {
	Target
	Project string `json:"project,omitempty"`
	ID      string `json:"id,omitempty"`
	// Settings are those of a new webhook, or of a change.
	Settings webhook.Settings `json:"settings"`
	// Pause is false to resume.
	Pause bool `json:"pause,omitempty"`
	// Body is the event to try.
	Body []byte `json:"body,omitempty"`
}

// WebhookRoutes returns the routes of the operations.
func WebhookRoutes(do commands.Webhooks, of access.Webhooks, now func() time.Time) []Route {
	return []Route{
		CreateWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.Create(ctx, call, in.Organization, in.Project, in.Settings)
		}),
		ListWebhooks.Serve(func(ctx context.Context, in WebhookRequest) ([]tenants.Webhook, error) {
			return of.List(ctx, in.Organization, in.Project)
		}),
		ShowWebhook.Serve(func(ctx context.Context, in WebhookRequest) (tenants.Webhook, error) {
			return of.Show(ctx, in.Organization, in.ID)
		}),
		ChangeWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.Change(ctx, call, in.Organization, in.ID, in.Settings)
		}),
		PauseWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.SetPaused(ctx, call, in.Organization, in.ID, in.Pause)
		}),
		RotateWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.RotateToken(ctx, call, in.Organization, in.ID)
		}),
		DeleteWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.Remove(ctx, call, in.Organization, in.ID)
		}),
		TryWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.TriedEvent, error) {
			return do.Try(ctx, call, in.Organization, in.ID, in.Body)
		}),
	}
}
