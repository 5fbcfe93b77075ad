package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/auth"
)

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

// webhookByToken fills the holder of a webhook's token.
func (q Queries) webhookByToken(ctx context.Context, hash [32]byte, h *auth.Holder) error {
	_, err := q.holderOf(ctx, h, `w.token_hash = $1`, hash[:])
	return err
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
