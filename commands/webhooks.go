package commands

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/secret"
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
func (s *Service) CreateWebhook(ctx context.Context, call Call, settings webhook.Settings) (WebhookReceipt, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
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
func (s *Service) ChangeWebhook(ctx context.Context, call Call, id string, settings webhook.Settings) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
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
func (s *Service) SetWebhookPaused(ctx context.Context, call Call, id string, paused bool) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	return s.changeWebhook(ctx, call, func(state project.State) ([]event.Event, error) {
		return state.SetWebhookPaused(call.Principal.Project.ID, id, paused, call.ReceivedAt)
	})
}

// RotateWebhookToken gives a webhook a new token. The one before is refused from the next call on, and can
// no longer be shown. Its faults are not-found and service-unavailable.
func (s *Service) RotateWebhookToken(ctx context.Context, call Call, id string) (WebhookReceipt, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
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
func (s *Service) DeleteWebhook(ctx context.Context, call Call, id string) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
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
		return s.refuseRemovalFrom(ctx, err, stream.Name(stream.Project, call.Principal.Project.ID), projection.Access)
	}
	s.dropToken(ctx, token)
	return nil
}

// CheckWebhook checks settings, and that the project of the call has the audience. Its faults are
// invalid-request, which names the wrong setting, and audience-unknown.
func (s *Service) CheckWebhook(ctx context.Context, call Call, settings webhook.Settings) error {
	if _, err := settings.Compile(); err != nil {
		return err
	}
	if settings.Audience == "" {
		return nil
	}
	_, err := s.audienceNames(call).id(ctx, &settings.Audience)
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
	ctx context.Context, call Call, decide func(project.State) ([]event.Event, error),
) error {
	done, err := s.decideProject(ctx, call, call.Principal.Project.ID, decide)
	if err != nil {
		return err
	}
	return waitVisible(ctx, s.waiter, done, projection.Access)
}
