package commands

import (
	"context"

	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/tenants"
)

// WebhookFinder finds webhooks and their projects, with everything that was answered before. An organization is named
// by name or id, "" is any; a project by slug. Both return the project, its organization and its plan as the principal
// of a call has them. The faults are not-found, conflict and service-unavailable.
type WebhookFinder interface {
	WebhookProject(ctx context.Context, organization, slug string) (auth.Principal, error)
	Webhook(ctx context.Context, organization, id string) (tenants.Webhook, auth.Principal, error)
}

// Webhooks performs the commands of Service on webhooks for a caller who names the webhook, or the project of a new
// one. The principal of a call is the caller; its project is that of the webhook.
type Webhooks struct {
	Service *Service
	Finder  WebhookFinder
	// URLs have the address of the console, under which webhooks are called.
	URLs auth.URLs
}

// Create creates a webhook of a project, and returns it with its URL.
func (w Webhooks) Create(
	ctx context.Context, call Call, organization, slug string, settings webhook.Settings,
) (out tenants.Webhook, err error) {
	of, err := w.Finder.WebhookProject(ctx, organization, slug)
	if err != nil {
		return out, err
	}
	made, err := w.Service.CreateWebhook(ctx, call.of(of), settings)
	if err != nil {
		return out, err
	}
	return tenants.Webhook{
		ID: made.ID, URL: w.URLs.Webhook(made.ID, made.Token), Project: of.Project.Slug, Settings: settings,
		CreatedAt: call.ReceivedAt,
	}, nil
}

// Change replaces the settings of a webhook.
func (w Webhooks) Change(
	ctx context.Context, call Call, organization, id string, settings webhook.Settings,
) (tenants.Webhook, error) {
	return w.on(ctx, call, organization, id, func(call Call, out *tenants.Webhook) error {
		out.Settings = settings
		return w.Service.ChangeWebhook(ctx, call, id, settings)
	})
}

// SetPaused pauses a webhook, or resumes it.
func (w Webhooks) SetPaused(
	ctx context.Context, call Call, organization, id string, paused bool,
) (tenants.Webhook, error) {
	return w.on(ctx, call, organization, id, func(call Call, out *tenants.Webhook) error {
		out.Paused = paused
		return w.Service.SetWebhookPaused(ctx, call, id, paused)
	})
}

// RotateToken gives a webhook a new token, and returns it with the new URL.
func (w Webhooks) RotateToken(ctx context.Context, call Call, organization, id string) (tenants.Webhook, error) {
	return w.on(ctx, call, organization, id, func(call Call, out *tenants.Webhook) error {
		made, err := w.Service.RotateWebhookToken(ctx, call, id)
		out.URL = w.URLs.Webhook(id, made.Token)
		return err
	})
}

// Remove deletes a webhook.
func (w Webhooks) Remove(ctx context.Context, call Call, organization, id string) (tenants.Webhook, error) {
	return w.on(ctx, call, organization, id, func(call Call, out *tenants.Webhook) error {
		out.Deleted = true
		return w.Service.DeleteWebhook(ctx, call, id)
	})
}

// Try returns what an event of a webhook would become, as Service.TryEvent does.
func (w Webhooks) Try(
	ctx context.Context, call Call, organization, id string, body []byte,
) (out tenants.TriedEvent, err error) {
	found, of, err := w.Finder.Webhook(ctx, organization, id)
	if err != nil {
		return out, err
	}
	return w.Service.TryEvent(ctx, call.of(of), found.Settings, body)
}

// on changes a webhook, and returns it as it is after that.
func (w Webhooks) on(
	ctx context.Context, call Call, organization, id string, change func(Call, *tenants.Webhook) error,
) (tenants.Webhook, error) {
	out, of, err := w.Finder.Webhook(ctx, organization, id)
	if err == nil {
		err = change(call.of(of), &out)
	}
	if err != nil {
		return tenants.Webhook{}, err
	}
	return out, nil
}

// of returns the call in the project of a principal.
func (c Call) of(p auth.Principal) Call {
	c.Principal.OrganizationID, c.Principal.Project, c.Principal.Limits = p.OrganizationID, p.Project, p.Limits
	return c
}
