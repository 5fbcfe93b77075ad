package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/table"
)

// webhookRow is a row of table webhooks. Its settings are JSON.
type webhookRow struct {
	ID        string    `db:"id"`
	Project   uuid.UUID `db:"project_id,once"`
	TokenID   uuid.UUID `db:"token_id"`
	TokenHash []byte    `db:"token_hash"`
	Settings  string    `db:"settings"`
	Paused    bool      `db:"paused"`
	CreatedAt time.Time `db:"created_at,once"`
	deleted   bool
	dirty     bool
}

var webhooks = table.New[webhookRow](Name, schema, "webhooks")

// applyWebhook folds an event of a webhook.
func (p *fold) applyWebhook(e event.Event) (err error) {
	switch e := e.(type) {
	case *project.WebhookCreated:
		row := &webhookRow{
			ID: e.WebhookID, Project: e.ProjectID, TokenID: e.TokenID, CreatedAt: pgarray.Instant(e.CreatedAt), dirty: true,
		}
		if row.TokenHash, err = hashOf(e.TokenHash); err != nil {
			return err
		}
		p.webhooks[e.WebhookID] = row
		return row.set(e.Settings)
	case *project.WebhookChanged:
		return p.webhook(e.WebhookID, func(row *webhookRow) error { return row.set(e.Settings) })
	case *project.WebhookPaused:
		return p.webhook(e.WebhookID, func(row *webhookRow) error { row.Paused = true; return nil })
	case *project.WebhookResumed:
		return p.webhook(e.WebhookID, func(row *webhookRow) error { row.Paused = false; return nil })
	case *project.WebhookTokenRotated:
		return p.webhook(e.WebhookID, func(row *webhookRow) (err error) {
			row.TokenID = e.TokenID
			row.TokenHash, err = hashOf(e.TokenHash)
			return err
		})
	case *project.WebhookDeleted:
		return p.webhook(e.WebhookID, func(row *webhookRow) error { row.deleted = true; return nil })
	}
	return nil
}

func (r *webhookRow) set(settings any) error {
	text, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("encode settings of webhook %s: %w", r.ID, err)
	}
	r.Settings = string(text)
	return nil
}

// webhook changes the row of a webhook.
func (p *fold) webhook(id string, change func(*webhookRow) error) error {
	row := p.webhooks[id]
	if row == nil || row.deleted {
		return fmt.Errorf("webhook %s was never created, or is deleted", id)
	}
	row.dirty = true
	return change(row)
}

func (p *fold) saveWebhooks(b *pgx.Batch) {
	var gone []string
	var rows []*webhookRow
	for _, w := range p.webhooks {
		switch {
		case w.deleted:
			gone = append(gone, w.ID)
		case w.dirty:
			rows = append(rows, w)
		}
	}
	if len(gone) > 0 {
		b.Queue(`delete from webhooks where id = any($1::text[])`, gone)
	}
	webhooks.Save(b, rows)
}

// Webhook is a webhook without its token, which the vault holds under TokenID.
type Webhook struct {
	ID        string
	ProjectID uuid.UUID
	TokenID   uuid.UUID
	Settings  webhook.Settings
	Paused    bool
	CreatedAt time.Time
}

const selectWebhooks = `select id, project_id, token_id, settings, paused, created_at from access.webhooks `

func scanWebhook(row pgx.CollectableRow) (w Webhook, err error) {
	var settings string
	if err = row.Scan(&w.ID, &w.ProjectID, &w.TokenID, &settings, &w.Paused, &w.CreatedAt); err != nil {
		return w, err
	}
	return w, json.Unmarshal([]byte(settings), &w.Settings)
}

// Webhooks lists the webhooks of a project, oldest first.
func (q Queries) Webhooks(ctx context.Context, project auth.Project) ([]Webhook, error) {
	rows, err := q.DB.Query(ctx, selectWebhooks+`where project_id = $1 order by created_at, id`, project.ID)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanWebhook)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	return list, nil
}

// WebhookByID finds a webhook of any project, for the operator. ok is false for a deleted one.
func (q Queries) WebhookByID(ctx context.Context, id string) (w Webhook, ok bool, err error) {
	rows, err := q.DB.Query(ctx, selectWebhooks+`where id = $1`, id)
	if err != nil {
		return w, false, fmt.Errorf("find webhook: %w", err)
	}
	w, err = pgx.CollectExactlyOneRow(rows, scanWebhook)
	if errors.Is(err, pgx.ErrNoRows) {
		return Webhook{}, false, nil
	}
	if err != nil {
		return Webhook{}, false, fmt.Errorf("find webhook: %w", err)
	}
	return w, true, nil
}

// WebhookOf finds a webhook of a project, with the principal that its events have. ok is false for a deleted one.
func (q Queries) WebhookOf(
	ctx context.Context, project auth.Project, id string,
) (w Webhook, caller auth.Principal, ok bool, err error) {
	h := auth.Holder{Principal: auth.Principal{Kind: auth.WebhookToken}}
	w.CreatedAt, err = q.holderOf(ctx, &h, `w.project_id = $1 and w.id = $2`, project.ID, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Webhook{}, auth.Principal{}, false, nil
	}
	if err != nil {
		return Webhook{}, auth.Principal{}, false, fmt.Errorf("find webhook: %w", err)
	}
	w.ID, w.ProjectID, w.TokenID, w.Settings, w.Paused = id, project.ID, h.KeyID, h.Webhook.Settings, h.Webhook.Paused
	return w, h.Principal, true, nil
}

// holderOf fills the holder of the token of one webhook, and returns when the webhook was created.
func (q Queries) holderOf(
	ctx context.Context, h *auth.Holder, where string, args ...any,
) (created time.Time, err error) {
	var stored uuid.UUID
	var settings string
	w, p, l := &auth.Webhook{}, &h.Project, &h.Limits
	err = q.DB.QueryRow(ctx, `select w.id, w.token_id, w.settings, w.paused, w.created_at, o.id, not o.prepared, o.plan,
			o.spend_cap_tenths, p.id, p.number, p.slug, p.namespace, p.archived, p.reads, p.ingestion_cap, p.credit_cap_tenths
		from access.webhooks w join access.projects p on p.id = w.project_id join access.organizations o on o.id = p.organization_id
		where `+where, args...).
		Scan(&w.ID, &h.KeyID, &settings, &w.Paused, &created, &h.OrganizationID, &h.Preparing, &l.Plan,
			&l.SpendCapTenths, &p.ID, &p.Number, &p.Slug, &stored, &h.Archived, &p.Reads, &l.IngestionCap, &l.CreditCapTenths)
	if err != nil {
		return created, err
	}
	if err := json.Unmarshal([]byte(settings), &w.Settings); err != nil {
		return created, fmt.Errorf("read settings of webhook %s: %w", w.ID, err)
	}
	w.Archived = h.Archived
	h.KeyName, h.KeyPrefix, h.Webhook = w.Settings.Name, w.ID, w
	p.Namespace, err = q.Namespaces.Of(stored)
	return created, err
}

// Webhooks finds webhooks by the names that people use, as Tenancy finds projects.
type Webhooks struct {
	Tenancy Tenancy
	// Vault opens the tokens, which the URLs hold.
	Vault interface {
		Reveal(ctx context.Context, tokenID uuid.UUID) (token string, ok bool, err error)
	}
	// URLs have the address of the console, under which webhooks are called.
	URLs auth.URLs
}

// List lists the webhooks of a project, oldest first, without their URLs.
func (w Webhooks) List(ctx context.Context, organization, slug string) ([]tenants.Webhook, error) {
	of, err := w.WebhookProject(ctx, organization, slug)
	if err != nil {
		return nil, err
	}
	found, err := w.Tenancy.Queries.Webhooks(ctx, of.Project)
	list := make([]tenants.Webhook, len(found))
	for i, one := range found {
		list[i] = one.View(of.Project)
	}
	return list, err
}

// Show returns a webhook with its URL.
func (w Webhooks) Show(ctx context.Context, organization, id string) (tenants.Webhook, error) {
	found, of, err := w.find(ctx, organization, id)
	if err != nil {
		return tenants.Webhook{}, err
	}
	out := found.View(of.Project)
	out.URL, err = w.Reveal(ctx, found)
	return out, err
}

// Reveal returns the URL of a webhook, "" if its token cannot be opened: then the webhook works, but its URL cannot be
// shown.
func (w Webhooks) Reveal(ctx context.Context, of Webhook) (string, error) {
	token, ok, err := w.Vault.Reveal(ctx, of.TokenID)
	if errors.Is(err, secret.ErrSealKeyUnknown) {
		return "", nil
	}
	if err != nil || !ok {
		return "", err
	}
	return w.URLs.Webhook(of.ID, token), nil
}

// WebhookProject returns the only project with a slug, its organization and the plan of that, as a principal.
func (w Webhooks) WebhookProject(ctx context.Context, organization, slug string) (of auth.Principal, err error) {
	if err = w.Tenancy.Head.Await(ctx, projection.Access); err != nil {
		return of, err
	}
	p, err := w.Tenancy.Queries.OnlyProject(ctx, organization, slug)
	if err != nil {
		return of, err
	}
	return w.principal(ctx, p)
}

// Webhook returns a webhook, without its URL, and the principal that WebhookProject returns for its project.
func (w Webhooks) Webhook(ctx context.Context, organization, id string) (tenants.Webhook, auth.Principal, error) {
	found, of, err := w.find(ctx, organization, id)
	return found.View(of.Project), of, err
}

// find finds a webhook of any project or, if an organization is named, of that organization.
func (w Webhooks) find(ctx context.Context, organization, id string) (found Webhook, of auth.Principal, err error) {
	if err = w.Tenancy.Head.Await(ctx, projection.Access); err != nil {
		return found, of, err
	}
	q, p := w.Tenancy.Queries, Project{}
	found, ok, err := q.WebhookByID(ctx, id)
	if err == nil && ok {
		p, ok, err = q.ProjectByID(ctx, found.ProjectID)
	}
	if err == nil && ok && organization != "" {
		named, nameErr := q.OnlyProject(ctx, organization, p.Slug)
		ok = nameErr == nil && named.ID == p.ID
	}
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such webhook")
	}
	if err != nil {
		return Webhook{}, of, err
	}
	of, err = w.principal(ctx, p)
	return found, of, err
}

func (w Webhooks) principal(ctx context.Context, p Project) (of auth.Principal, err error) {
	organization, _, err := w.Tenancy.Queries.OrganizationByID(ctx, p.OrganizationID)
	of.OrganizationID, of.Project, of.Limits.Plan = p.OrganizationID, p.Project, organization.Plan
	return of, err
}

// View returns a webhook of a project as people see it.
func (w Webhook) View(project auth.Project) tenants.Webhook {
	return tenants.Webhook{
		ID: w.ID, Project: project.Slug, Settings: w.Settings, Paused: w.Paused, CreatedAt: w.CreatedAt,
	}
}
