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

// webhookByToken fills the holder of a webhook's token.
func (q Queries) webhookByToken(ctx context.Context, hash [32]byte, h *auth.Holder) error {
	var stored uuid.UUID
	var settings string
	w, p, l := &auth.Webhook{}, &h.Project, &h.Limits
	err := q.DB.QueryRow(ctx, `select w.id, w.token_id, w.settings, w.paused, o.id, not o.prepared, o.plan, o.spend_cap_tenths,
			p.id, p.number, p.slug, p.namespace, p.archived, p.ingestion_cap, p.credit_cap_tenths
		from access.webhooks w join access.projects p on p.id = w.project_id join access.organizations o on o.id = p.organization_id
		where w.token_hash = $1`, hash[:]).
		Scan(&w.ID, &h.KeyID, &settings, &w.Paused, &h.OrganizationID, &h.Preparing, &l.Plan, &l.SpendCapTenths,
			&p.ID, &p.Number, &p.Slug, &stored, &h.Archived, &l.IngestionCap, &l.CreditCapTenths)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(settings), &w.Settings); err != nil {
		return fmt.Errorf("read settings of webhook %s: %w", w.ID, err)
	}
	w.Archived = h.Archived
	h.KeyName, h.KeyPrefix, h.Webhook = w.Settings.Name, w.ID, w
	p.Namespace, err = q.Namespaces.Of(stored)
	return err
}
