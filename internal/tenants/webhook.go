package tenants

import (
	"encoding/json"
	"time"

	"github.com/annals-project/annals/domain/webhook"
)

// Webhook is a webhook.
type Webhook struct {
	ID string `json:"id"`
	// URL holds the token. It is "" in a list, and if the token cannot be opened.
	URL string `json:"url,omitempty"`
	// Project is the slug of its project.
	Project string `json:"project"`
	webhook.Settings
	Paused    bool      `json:"paused"`
	Deleted   bool      `json:"deleted,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// TriedEvent is what an event of a webhook would become.
type TriedEvent struct {
	Verdict   string  `json:"verdict"` // ingested or dropped
	DroppedBy *string `json:"droppedBy"`
	// Filters are the verdicts of all filters, in their order.
	Filters []TriedFilter `json:"filters,omitempty"`
	Content string        `json:"content,omitempty"`
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

// TriedFilter is the verdict of one filter.
type TriedFilter struct {
	Filter  string `json:"filter"`
	Matches bool   `json:"matches"`
}
