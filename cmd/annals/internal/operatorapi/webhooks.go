package operatorapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
)

// The operations on webhooks.
var (
	CreateWebhook    = Operation[WebhookRequest, Webhook]{http.MethodPost, "/operator/webhooks/create"}
	ListWebhooks     = Operation[WebhookRequest, []Webhook]{http.MethodPost, "/operator/webhooks/list"}
	ShowWebhook      = Operation[WebhookRequest, Webhook]{http.MethodPost, "/operator/webhooks/show"}
	ChangeWebhook    = Operation[WebhookRequest, Webhook]{http.MethodPost, "/operator/webhooks/change"}
	PauseWebhook     = Operation[WebhookRequest, Webhook]{http.MethodPost, "/operator/webhooks/pause"}
	RotateWebhook    = Operation[WebhookRequest, Webhook]{http.MethodPost, "/operator/webhooks/rotate-token"}
	DeleteWebhook    = Operation[WebhookRequest, Webhook]{http.MethodPost, "/operator/webhooks/delete"}
	TryWebhook       = Operation[WebhookRequest, TriedEvent]{http.MethodPost, "/operator/webhooks/try"}
	errNoSuchWebhook = Refuse("there is no such webhook")
)

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

// Webhook is a webhook for an operator.
type Webhook struct {
	ID string `json:"id"`
	// URL holds the token. It is "" in a list, and if the token cannot be opened.
	URL     string `json:"url,omitempty"`
	Project string `json:"project"`
	webhook.Settings
	Paused    bool      `json:"paused"`
	Deleted   bool      `json:"deleted,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// TriedEvent is what an event would become.
type TriedEvent struct {
	Verdict   string  `json:"verdict"` // ingested or dropped
	DroppedBy *string `json:"droppedBy"`
	Content   string  `json:"content,omitempty"`
	// OccurredAt is nil if it is the time of receipt, ID "" if it is the id of the event.
	OccurredAt *time.Time `json:"occurredAt"`
	ID         string     `json:"id,omitempty"`
	Audience   string     `json:"audience,omitempty"`
	// Refused is the reason why the ingestion would be refused, "" for none that is known now.
	Refused string `json:"refused,omitempty"`
	// Credits are the most that it would cost: an unchanged data point costs that of the event alone. They are nil
	// without metering.
	Credits *json.Number `json:"credits"`
}

// Webhooks performs the operations.
type Webhooks struct {
	Commands *commands.Service
	Access   access.Queries
	Vault    secret.Vault
	// URL is the public address of the console, under which webhooks are called.
	URL  string
	Head projections.Head
	Now  func() time.Time
}

// Routes returns the routes of the operations.
func (o Webhooks) Routes() []Route {
	return []Route{
		CreateWebhook.Serve(o.create), ListWebhooks.Serve(o.list), ShowWebhook.Serve(o.show), ChangeWebhook.Serve(o.change),
		PauseWebhook.Serve(o.pause), RotateWebhook.Serve(o.rotate), DeleteWebhook.Serve(o.delete), TryWebhook.Serve(o.try),
	}
}

// ready waits until the tables show the head of the log.
func (o Webhooks) ready(ctx context.Context) error {
	_, err := o.Head.Await(ctx, projection.Access)
	return err
}

// project finds the project that a request names.
func (o Webhooks) project(ctx context.Context, in WebhookRequest) (access.Project, error) {
	if err := o.ready(ctx); err != nil {
		return access.Project{}, err
	}
	return o.Access.OnlyProject(ctx, in.Organization, in.Project)
}

// find finds the webhook that a request names, with its project. If the request names an organization, it is
// one of that organization.
func (o Webhooks) find(ctx context.Context, in WebhookRequest) (w access.Webhook, p access.Project, err error) {
	if err := o.ready(ctx); err != nil {
		return w, p, err
	}
	w, ok, err := o.Access.WebhookByID(ctx, in.ID)
	if err == nil && ok {
		p, ok, err = o.Access.ProjectByID(ctx, w.ProjectID)
	}
	if err != nil || !ok {
		return w, p, errors.Join(err, noneUnless(ok))
	}
	if in.Organization == "" {
		return w, p, nil
	}
	of, err := o.Access.OnlyProject(ctx, in.Organization, p.Slug)
	if err != nil || of.ID != p.ID {
		return w, p, errNoSuchWebhook
	}
	return w, p, nil
}

func noneUnless(ok bool) error {
	if ok {
		return nil
	}
	return errNoSuchWebhook
}

func (o Webhooks) call(in WebhookRequest, p access.Project) commands.Call {
	call := CallBy(in.By, o.Now())
	call.Principal.OrganizationID, call.Principal.Project = p.OrganizationID, p.Project
	return call
}

func (o Webhooks) urlOf(id, token string) string {
	return o.URL + auth.Prefix + "/webhooks/" + id + "/" + token
}

func (o Webhooks) create(ctx context.Context, in WebhookRequest) (out Webhook, err error) {
	p, err := o.project(ctx, in)
	if err != nil {
		return out, err
	}
	call := o.call(in, p)
	made, err := o.Commands.CreateWebhook(ctx, call, in.Settings)
	if err != nil {
		return out, refusedFor(err)
	}
	return Webhook{
		ID: made.ID, URL: o.urlOf(made.ID, made.Token), Project: p.Slug, Settings: in.Settings, CreatedAt: call.ReceivedAt,
	}, nil
}

func (o Webhooks) list(ctx context.Context, in WebhookRequest) ([]Webhook, error) {
	p, err := o.project(ctx, in)
	if err != nil {
		return nil, err
	}
	found, err := o.Access.Webhooks(ctx, p.Project)
	list := make([]Webhook, len(found))
	for i, w := range found {
		list[i] = viewOf(w, p)
	}
	return list, err
}

func viewOf(w access.Webhook, p access.Project) Webhook {
	return Webhook{ID: w.ID, Project: p.Slug, Settings: w.Settings, Paused: w.Paused, CreatedAt: w.CreatedAt}
}

func (o Webhooks) show(ctx context.Context, in WebhookRequest) (out Webhook, err error) {
	w, p, err := o.find(ctx, in)
	if err != nil {
		return out, err
	}
	out = viewOf(w, p)
	token, ok, err := o.Vault.Reveal(ctx, w.TokenID)
	if errors.Is(err, secret.ErrSealKeyUnknown) {
		return out, nil // the webhook works, but its URL cannot be shown
	}
	if ok {
		out.URL = o.urlOf(w.ID, token)
	}
	return out, err
}

func (o Webhooks) change(ctx context.Context, in WebhookRequest) (out Webhook, err error) {
	w, p, err := o.find(ctx, in)
	if err != nil {
		return out, err
	}
	if err := o.Commands.ChangeWebhook(ctx, o.call(in, p), w.ID, in.Settings); err != nil {
		return out, refusedFor(err)
	}
	w.Settings = in.Settings
	return viewOf(w, p), nil
}

func (o Webhooks) pause(ctx context.Context, in WebhookRequest) (out Webhook, err error) {
	w, p, err := o.find(ctx, in)
	if err != nil {
		return out, err
	}
	if err := o.Commands.SetWebhookPaused(ctx, o.call(in, p), w.ID, in.Pause); err != nil {
		return out, refusedFor(err)
	}
	w.Paused = in.Pause
	return viewOf(w, p), nil
}

func (o Webhooks) rotate(ctx context.Context, in WebhookRequest) (out Webhook, err error) {
	w, p, err := o.find(ctx, in)
	if err != nil {
		return out, err
	}
	made, err := o.Commands.RotateWebhookToken(ctx, o.call(in, p), w.ID)
	if err != nil {
		return out, refusedFor(err)
	}
	out = viewOf(w, p)
	out.URL = o.urlOf(w.ID, made.Token)
	return out, nil
}

func (o Webhooks) delete(ctx context.Context, in WebhookRequest) (out Webhook, err error) {
	w, p, err := o.find(ctx, in)
	if err != nil {
		return out, err
	}
	if err := o.Commands.DeleteWebhook(ctx, o.call(in, p), w.ID); err != nil {
		return out, refusedFor(err)
	}
	out = viewOf(w, p)
	out.Deleted = true
	return out, nil
}

// try maps a body and writes nothing.
func (o Webhooks) try(ctx context.Context, in WebhookRequest) (out TriedEvent, err error) {
	if len(in.Body) > limit.WebhookBody {
		return out, Refuse("the event has more than %d bytes", limit.WebhookBody)
	}
	w, p, err := o.find(ctx, in)
	if err != nil {
		return out, err
	}
	mapping, err := w.Settings.Compile()
	if err != nil {
		return out, refusedFor(err)
	}
	organization, _, err := o.Access.OrganizationByID(ctx, p.OrganizationID)
	if err != nil {
		return out, err
	}
	event, tenths := mapping.Map(in.Body), int64(metering.WebhookEventTenths)
	if event.DroppedBy == "" {
		tenths += metering.IngestTenths(int64(len(event.Content)))
	}
	if organization.Plan.Metered() {
		out.Credits = new(metering.Credits(tenths))
	}
	if event.DroppedBy != "" {
		out.Verdict, out.DroppedBy = "dropped", &event.DroppedBy
		return out, nil
	}
	out.Verdict, out.Content, out.ID, out.Audience = "ingested", event.Content, event.ID, w.Settings.Audience
	if !event.OccurredAt.IsZero() {
		out.OccurredAt = &event.OccurredAt
	}
	err = o.Commands.CheckWebhook(ctx, o.call(in, p), w.Settings)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeAudienceUnknown {
		out.Refused, err = f.Msg, nil
	}
	return out, err
}
