package annals

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Usage is what was used in the current month, and what is left. Credits are nil if nothing is metered.
type Usage struct {
	Month   UsageMonth   `json:"month"`
	Balance UsageBalance `json:"balance"`
	// Project is that of a project key.
	Project *ProjectUsage `json:"project,omitempty"`
	// Projects are the live ones, for a management key, heaviest spender first.
	Projects []ProjectUsage `json:"projects,omitempty"`
	Metered  bool           `json:"metered"`
}

// UsageMonth is a calendar month in UTC.
type UsageMonth struct {
	From     time.Time  `json:"from"`
	To       time.Time  `json:"to"`
	ResetsAt *time.Time `json:"resetsAt"`
}

// UsageBalance is the credits of the organization: Left is Included, Bought and RolledOver without Spent.
type UsageBalance struct {
	Left       *json.Number `json:"left"`
	Included   *json.Number `json:"included"`
	Bought     *json.Number `json:"bought"`
	RolledOver *json.Number `json:"rolledOver"`
	Spent      *json.Number `json:"spent"`
	// SpendCap is what the organization may spend a month, for a management key.
	SpendCap *json.Number `json:"spendCap,omitempty"`
}

// ProjectUsage is what a project used. Caps, and what is left of them, are nil if none is set.
type ProjectUsage struct {
	Slug             string       `json:"slug"`
	Credits          *json.Number `json:"credits"`
	Ingestions       int64        `json:"ingestions"`
	Recalls          int64        `json:"recalls"`
	CreditCap        *json.Number `json:"creditCap"`
	CreditCapLeft    *json.Number `json:"creditCapLeft"`
	IngestionCap     *int64       `json:"ingestionCap"`
	IngestionCapLeft *int64       `json:"ingestionCapLeft"`
}

// GetUsage returns the usage of the project of a project key, or of the organization of a management key.
func (c *Client) GetUsage(ctx context.Context) (*Usage, error) {
	return get[Usage](ctx, c, path("usage"), nil)
}

// ProjectID returns an id of the key's project that no other project has, in this service or another one.
func (c *Client) ProjectID(ctx context.Context) (string, error) {
	got, err := c.do(ctx, call{method: http.MethodGet, path: path("usage"), repeat: safe})
	if id := got.header.Get("X-Annals-Project"); id != "" {
		return id, nil // also on a refusal, as by a process that serves no reads
	}
	return "", err
}
