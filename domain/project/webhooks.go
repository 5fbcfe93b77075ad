package project

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/webhook"
)

// WebhookCreated adds a webhook to a project. TokenHash is the SHA-256 of its token in lower-case
// hexadecimal; TokenID names the sealed token in the vault. No event contains the clear token.
type WebhookCreated struct {
	ProjectID uuid.UUID        `json:"projectId"`
	WebhookID string           `json:"webhookId"`
	TokenID   uuid.UUID        `json:"tokenId"`
	TokenHash string           `json:"tokenHash"`
	Settings  webhook.Settings `json:"settings"`
	CreatedAt time.Time        `json:"createdAt"`
}

func (WebhookCreated) EventType() string { return "project.webhook-created.v1" }

// WebhookChanged replaces the settings of a webhook.
type WebhookChanged struct {
	ProjectID uuid.UUID        `json:"projectId"`
	WebhookID string           `json:"webhookId"`
	Settings  webhook.Settings `json:"settings"`
	ChangedAt time.Time        `json:"changedAt"`
}

func (WebhookChanged) EventType() string { return "project.webhook-changed.v1" }

// WebhookPaused refuses the events of a webhook until it is resumed.
type WebhookPaused struct {
	ProjectID uuid.UUID `json:"projectId"`
	WebhookID string    `json:"webhookId"`
	PausedAt  time.Time `json:"pausedAt"`
}

func (WebhookPaused) EventType() string { return "project.webhook-paused.v1" }

// WebhookResumed takes events of a webhook again.
type WebhookResumed struct {
	ProjectID uuid.UUID `json:"projectId"`
	WebhookID string    `json:"webhookId"`
	ResumedAt time.Time `json:"resumedAt"`
}

func (WebhookResumed) EventType() string { return "project.webhook-resumed.v1" }

// WebhookTokenRotated replaces the token of a webhook. The one before is refused from the next call on.
type WebhookTokenRotated struct {
	ProjectID uuid.UUID `json:"projectId"`
	WebhookID string    `json:"webhookId"`
	TokenID   uuid.UUID `json:"tokenId"`
	TokenHash string    `json:"tokenHash"`
	RotatedAt time.Time `json:"rotatedAt"`
}

func (WebhookTokenRotated) EventType() string { return "project.webhook-token-rotated.v1" }

// WebhookDeleted removes a webhook. Its data points stay.
type WebhookDeleted struct {
	ProjectID uuid.UUID `json:"projectId"`
	WebhookID string    `json:"webhookId"`
	DeletedAt time.Time `json:"deletedAt"`
}

func (WebhookDeleted) EventType() string { return "project.webhook-deleted.v1" }

// Webhook is what decisions need of a webhook.
type Webhook struct {
	TokenID  uuid.UUID
	Settings webhook.Settings
	Paused   bool
}

// evolveWebhook folds an event of a webhook.
func (s *State) evolveWebhook(e event.Event) {
	change := func(id string, change func(*Webhook)) {
		if w, ok := s.Webhooks[id]; ok {
			change(&w)
			s.Webhooks[id] = w
		}
	}
	switch e := e.(type) {
	case *WebhookCreated:
		if s.Webhooks == nil {
			s.Webhooks = make(map[string]Webhook)
		}
		s.Webhooks[e.WebhookID] = Webhook{TokenID: e.TokenID, Settings: e.Settings}
	case *WebhookChanged:
		change(e.WebhookID, func(w *Webhook) { w.Settings = e.Settings })
	case *WebhookPaused:
		change(e.WebhookID, func(w *Webhook) { w.Paused = true })
	case *WebhookResumed:
		change(e.WebhookID, func(w *Webhook) { w.Paused = false })
	case *WebhookTokenRotated:
		change(e.WebhookID, func(w *Webhook) { w.TokenID = e.TokenID })
	case *WebhookDeleted:
		delete(s.Webhooks, e.WebhookID)
	}
}

// CreateWebhook decides the creation of a webhook. Its fault is invalid-request if the project has as many
// as it may have.
func (s State) CreateWebhook(e WebhookCreated) ([]event.Event, error) {
	if len(s.Webhooks) >= limit.Webhooks {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"the project has %d webhooks, the most: delete one first", len(s.Webhooks))
	}
	return []event.Event{&e}, nil
}

// FindWebhook returns a webhook. The fault is not-found, also for a deleted one.
func (s State) FindWebhook(id string) (Webhook, error) {
	w, ok := s.Webhooks[id]
	if !ok {
		return w, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no webhook %.40q", id)
	}
	return w, nil
}

// SetWebhookPaused decides a pause or its end. A webhook that is so already stays as it is. The fault is
// not-found.
func (s State) SetWebhookPaused(project uuid.UUID, id string, paused bool, at time.Time) ([]event.Event, error) {
	w, err := s.FindWebhook(id)
	switch {
	case err != nil || w.Paused == paused:
		return nil, err
	case paused:
		return []event.Event{&WebhookPaused{ProjectID: project, WebhookID: id, PausedAt: at}}, nil
	default:
		return []event.Event{&WebhookResumed{ProjectID: project, WebhookID: id, ResumedAt: at}}, nil
	}
}
