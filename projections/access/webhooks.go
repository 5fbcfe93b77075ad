package access

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/internal/pgarray"
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
