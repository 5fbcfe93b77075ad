package tenancy

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tenants"
)

// WebhookReceipt is a new webhook, or one with a new token. The token is shown here, and later by the
// vault, under TokenID.
type WebhookReceipt struct {
	ID      string
	TokenID uuid.UUID
	Token   string
}

// CreateWebhook creates a webhook in the project of the call. Its faults are invalid-request, which names
// the wrong setting, audience-unknown and service-unavailable.
func (s *Service) CreateWebhook(
	ctx context.Context, call engine.Call, settings webhook.Settings,
) (WebhookReceipt, error) {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if err := s.CheckWebhook(ctx, call, settings); err != nil {
		return WebhookReceipt{}, err
	}
	id, err := secret.NewWebhookID()
	if err != nil {
		return WebhookReceipt{}, err
	}
	receipt, hash, err := s.newToken(ctx, id)
	if err != nil {
		return WebhookReceipt{}, err
	}
	return receipt, s.changeWebhook(ctx, call, func(state project.State) ([]event.Event, error) {
		return state.CreateWebhook(project.WebhookCreated{
			ProjectID: call.Principal.Project.ID, WebhookID: id, TokenID: receipt.TokenID, TokenHash: hash,
			Settings: settings, CreatedAt: call.ReceivedAt,
		})
	})
}

// ChangeWebhook replaces the settings of a webhook. Its faults are those of CreateWebhook, and not-found.
func (s *Service) ChangeWebhook(ctx context.Context, call engine.Call, id string, settings webhook.Settings) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	if err := s.CheckWebhook(ctx, call, settings); err != nil {
		return err
	}
	return s.changeWebhook(ctx, call, func(state project.State) ([]event.Event, error) {
		_, err := state.FindWebhook(id)
		return []event.Event{&project.WebhookChanged{
			ProjectID: call.Principal.Project.ID, WebhookID: id, Settings: settings, ChangedAt: call.ReceivedAt,
		}}, err
	})
}

// SetWebhookPaused pauses a webhook, so that its events are refused, or resumes it. The fault is not-found.
func (s *Service) SetWebhookPaused(ctx context.Context, call engine.Call, id string, paused bool) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	return s.changeWebhook(ctx, call, func(state project.State) ([]event.Event, error) {
		return state.SetWebhookPaused(call.Principal.Project.ID, id, paused, call.ReceivedAt)
	})
}

// RotateWebhookToken gives a webhook a new token. The one before is refused from the next call on, and can
// no longer be shown. Its faults are not-found and service-unavailable.
func (s *Service) RotateWebhookToken(ctx context.Context, call engine.Call, id string) (WebhookReceipt, error) {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	receipt, hash, err := s.newToken(ctx, id)
	if err != nil {
		return WebhookReceipt{}, err
	}
	var before uuid.UUID
	err = s.changeWebhook(ctx, call, func(state project.State) ([]event.Event, error) {
		w, err := state.FindWebhook(id)
		before = w.TokenID
		return []event.Event{&project.WebhookTokenRotated{
			ProjectID: call.Principal.Project.ID, WebhookID: id, TokenID: receipt.TokenID, TokenHash: hash,
			RotatedAt: call.ReceivedAt,
		}}, err
	})
	if err != nil {
		return WebhookReceipt{}, err
	}
	s.dropToken(ctx, before)
	return receipt, nil
}

// DeleteWebhook removes a webhook. Its events are refused from the next call on; what it ingested stays.
// The fault is not-found.
func (s *Service) DeleteWebhook(ctx context.Context, call engine.Call, id string) error {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	var token uuid.UUID
	err := s.changeWebhook(ctx, call, func(state project.State) ([]event.Event, error) {
		w, err := state.FindWebhook(id)
		token = w.TokenID
		return []event.Event{&project.WebhookDeleted{
			ProjectID: call.Principal.Project.ID, WebhookID: id, DeletedAt: call.ReceivedAt,
		}}, err
	})
	if err != nil {
		name := stream.Name(stream.Project, call.Principal.Project.ID)
		return engine.RefuseRemovalFrom(ctx, s.journal, s.waiter, err, name, projection.Access)
	}
	s.dropToken(ctx, token)
	return nil
}

// CheckWebhook checks settings, and that the project of the call has the audience. Its faults are
// invalid-request, which names the wrong setting, and audience-unknown.
func (s *Service) CheckWebhook(ctx context.Context, call engine.Call, settings webhook.Settings) error {
	if _, err := settings.Compile(); err != nil {
		return err
	}
	if settings.Audience == "" {
		return nil
	}
	_, err := s.audiences.Names(call).ID(ctx, &settings.Audience)
	return err
}

// newToken seals a new token before an event names it, so that no crash leaves a token that cannot be
// shown. A later start drops a sealed token that no webhook has.
func (s *Service) newToken(ctx context.Context, id string) (r WebhookReceipt, hash string, err error) {
	token, err := secret.NewWebhookToken()
	if err != nil {
		return r, "", err
	}
	r = WebhookReceipt{ID: id, TokenID: uuid.New(), Token: token}
	if err := s.vault.Keep(ctx, r.TokenID, token); err != nil {
		s.journal.Logger.ErrorContext(ctx, "seal of a new token failed, the webhook is refused", "err", err)
		return r, "", fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the token could not be stored; retry")
	}
	return r, secret.HashText(token), nil
}

func (s *Service) dropToken(ctx context.Context, id uuid.UUID) {
	if err := s.vault.Drop(ctx, id); err != nil {
		s.journal.Logger.WarnContext(ctx, "sealed token of a webhook not dropped, next start drops it", "token", id,
			"err", err)
	}
}

// changeWebhook decides on the project of a call. It returns once every process looks webhooks up with the
// change.
func (s *Service) changeWebhook(
	ctx context.Context, call engine.Call, decide func(project.State) ([]event.Event, error),
) error {
	done, err := s.decideProject(ctx, call, call.Principal.Project.ID, decide)
	if err != nil {
		return err
	}
	return engine.WaitVisible(ctx, s.waiter, done, projection.Access)
}

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
	ctx context.Context, call engine.Call, organization, slug string, settings webhook.Settings,
) (out tenants.Webhook, err error) {
	of, err := w.Finder.WebhookProject(ctx, organization, slug)
	if err != nil {
		return out, err
	}
	made, err := w.Service.CreateWebhook(ctx, callOf(of, call), settings)
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
	ctx context.Context, call engine.Call, organization, id string, settings webhook.Settings,
) (tenants.Webhook, error) {
	return w.on(ctx, call, organization, id, func(call engine.Call, out *tenants.Webhook) error {
		out.Settings = settings
		return w.Service.ChangeWebhook(ctx, call, id, settings)
	})
}

// SetPaused pauses a webhook, or resumes it.
func (w Webhooks) SetPaused(
	ctx context.Context, call engine.Call, organization, id string, paused bool,
) (tenants.Webhook, error) {
	return w.on(ctx, call, organization, id, func(call engine.Call, out *tenants.Webhook) error {
		out.Paused = paused
		return w.Service.SetWebhookPaused(ctx, call, id, paused)
	})
}

// RotateToken gives a webhook a new token, and returns it with the new URL.
func (w Webhooks) RotateToken(ctx context.Context, call engine.Call, organization, id string) (tenants.Webhook, error) {
	return w.on(ctx, call, organization, id, func(call engine.Call, out *tenants.Webhook) error {
		made, err := w.Service.RotateWebhookToken(ctx, call, id)
		out.URL = w.URLs.Webhook(id, made.Token)
		return err
	})
}

// Remove deletes a webhook.
func (w Webhooks) Remove(ctx context.Context, call engine.Call, organization, id string) (tenants.Webhook, error) {
	return w.on(ctx, call, organization, id, func(call engine.Call, out *tenants.Webhook) error {
		out.Deleted = true
		return w.Service.DeleteWebhook(ctx, call, id)
	})
}

// Try returns what an event of a webhook would become, as Service.TryEvent does.
func (w Webhooks) Try(
	ctx context.Context, call engine.Call, organization, id string, body []byte,
) (out tenants.TriedEvent, err error) {
	found, of, err := w.Finder.Webhook(ctx, organization, id)
	if err != nil {
		return out, err
	}
	return w.Service.TryEvent(ctx, callOf(of, call), found.Settings, body)
}

// on changes a webhook, and returns it as it is after that.
func (w Webhooks) on(
	ctx context.Context, call engine.Call, organization, id string, change func(engine.Call, *tenants.Webhook) error,
) (tenants.Webhook, error) {
	out, of, err := w.Finder.Webhook(ctx, organization, id)
	if err == nil {
		err = change(callOf(of, call), &out)
	}
	if err != nil {
		return tenants.Webhook{}, err
	}
	return out, nil
}

// callOf returns the call in the project of a principal.
func callOf(p auth.Principal, c engine.Call) engine.Call {
	c.Principal.OrganizationID, c.Principal.Project, c.Principal.Limits = p.OrganizationID, p.Project, p.Limits
	return c
}

// TryEvent returns what an event of a webhook with these settings would become in the project of the call, and its
// price by the plan of the call. It writes nothing. Its faults are invalid-request and webhook-body-too-large.
func (s *Service) TryEvent(
	ctx context.Context, call engine.Call, settings webhook.Settings, body []byte,
) (out tenants.TriedEvent, err error) {
	if len(body) > limit.WebhookBody {
		return out, fault.New(fault.Invalid, fault.CodeWebhookBodyTooLarge, "the event has more than %d bytes",
			limit.WebhookBody)
	}
	mapping, err := settings.Compile()
	if err != nil {
		return out, err
	}
	body = webhook.Plain("", body)
	for i, matches := range mapping.Matches(body) {
		out.Filters = append(out.Filters, tenants.TriedFilter{Filter: settings.Filters[i].String(), Matches: matches})
	}
	event, tenths := mapping.Map(body), int64(metering.WebhookEventTenths)
	if event.DroppedBy == "" {
		tenths += metering.IngestTenths(int64(len(event.Content)))
	}
	if call.Principal.Limits.Plan.Metered() {
		out.Credits = new(metering.Credits(tenths))
	}
	if event.DroppedBy != "" {
		out.Verdict, out.DroppedBy = "dropped", &event.DroppedBy
		return out, nil
	}
	out.Verdict, out.Content, out.ID, out.Audience = "ingested", event.Content, event.ID, settings.Audience
	if !event.OccurredAt.IsZero() {
		out.OccurredAt = &event.OccurredAt
	}
	err = s.CheckWebhook(ctx, call, settings)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeAudienceUnknown {
		out.Refused, err = f.Msg, nil
	}
	return out, err
}
