package access

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
)

// webhookRow is a webhook. settings are as JSON.
type webhookRow struct {
	id        string
	project   uuid.UUID
	tokenID   uuid.UUID
	tokenHash []byte
	settings  string
	paused    bool
	createdAt time.Time
	deleted   bool
	dirty     bool
}

// applyWebhook folds an event of a webhook.
func (p *fold) applyWebhook(e event.Event) (err error) {
	switch e := e.(type) {
	case *project.WebhookCreated:
		row := &webhookRow{
			id: e.WebhookID, project: e.ProjectID, tokenID: e.TokenID, createdAt: pgarray.Instant(e.CreatedAt), dirty: true,
		}
		if row.tokenHash, err = hashOf(e.TokenHash); err != nil {
			return err
		}
		p.webhooks[e.WebhookID] = row
		return row.set(e.Settings)
	case *project.WebhookChanged:
		return p.webhook(e.WebhookID, func(row *webhookRow) error { return row.set(e.Settings) })
	case *project.WebhookPaused:
		return p.webhook(e.WebhookID, func(row *webhookRow) error { row.paused = true; return nil })
	case *project.WebhookResumed:
		return p.webhook(e.WebhookID, func(row *webhookRow) error { row.paused = false; return nil })
	case *project.WebhookTokenRotated:
		return p.webhook(e.WebhookID, func(row *webhookRow) (err error) {
			row.tokenID = e.TokenID
			row.tokenHash, err = hashOf(e.TokenHash)
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
		return fmt.Errorf("encode settings of webhook %s: %w", r.id, err)
	}
	r.settings = string(text)
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

// queueWebhooks reads the webhooks that the events change.
func (p *fold) queueWebhooks(b *pgx.Batch, events []eventstore.DecodedEvent) {
	var ids []string
	for _, f := range events {
		switch e := f.Event.(type) {
		case *project.WebhookChanged:
			ids = append(ids, e.WebhookID)
		case *project.WebhookPaused:
			ids = append(ids, e.WebhookID)
		case *project.WebhookResumed:
			ids = append(ids, e.WebhookID)
		case *project.WebhookTokenRotated:
			ids = append(ids, e.WebhookID)
		case *project.WebhookDeleted:
			ids = append(ids, e.WebhookID)
		}
	}
	if len(ids) == 0 {
		return
	}
	b.Queue(`select id, project_id, token_id, token_hash, settings, paused, created_at from webhooks
		where id = any($1::text[])`, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			w := &webhookRow{}
			err := rows.Scan(&w.id, &w.project, &w.tokenID, &w.tokenHash, &w.settings, &w.paused, &w.createdAt)
			if err != nil {
				return err
			}
			p.webhooks[w.id] = w
		}
		return rows.Err()
	})
}

func (p *fold) saveWebhooks(b *pgx.Batch) {
	var gone []string
	var rows []*webhookRow
	for _, w := range p.webhooks {
		switch {
		case w.deleted:
			gone = append(gone, w.id)
		case w.dirty:
			rows = append(rows, w)
		}
	}
	if len(gone) > 0 {
		b.Queue(`delete from webhooks where id = any($1::text[])`, gone)
	}
	if len(rows) > 0 {
		b.Queue(`insert into webhooks (id, project_id, token_id, token_hash, settings, paused, created_at)
			select * from unnest($1::text[], $2::uuid[], $3::uuid[], $4::bytea[], $5::text[], $6::boolean[], $7::timestamptz[])
			on conflict (id) do update set token_id = excluded.token_id, token_hash = excluded.token_hash,
				settings = excluded.settings, paused = excluded.paused`,
			pgarray.Column(rows, func(w *webhookRow) string { return w.id }),
			pgarray.IDs(rows, func(w *webhookRow) uuid.UUID { return w.project }),
			pgarray.IDs(rows, func(w *webhookRow) uuid.UUID { return w.tokenID }),
			pgarray.Column(rows, func(w *webhookRow) []byte { return w.tokenHash }),
			pgarray.Column(rows, func(w *webhookRow) string { return w.settings }),
			pgarray.Column(rows, func(w *webhookRow) bool { return w.paused }),
			pgarray.Column(rows, func(w *webhookRow) time.Time { return w.createdAt }))
	}
}
