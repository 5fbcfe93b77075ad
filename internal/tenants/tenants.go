// Package tenants is organizations, projects and keys as people see them: what commands on them and queries for them
// return, as JSON. Credits are decimals with at most one digit. Commands and projections may not import each other, so
// both use these types.
package tenants

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
)

// Organization is an organization as a command returns it. Fields that do not concern the command are empty.
type Organization struct {
	ID   uuid.UUID     `json:"id"`
	Name string        `json:"name"`
	Plan metering.Plan `json:"plan,omitempty"`
	// OwnerEmail and CreatedAt are returned by the creation.
	OwnerEmail string     `json:"ownerEmail,omitempty"`
	CreatedAt  *time.Time `json:"createdAt,omitempty"`
	// Granted is what the command granted, below 0 if it took credits back. Left can be spent then.
	Granted json.Number `json:"granted,omitempty"`
	Left    json.Number `json:"left,omitempty"`
	// SpendCap is null without a cap.
	SpendCap *json.Number `json:"spendCap"`
	// ManagementKey is the clear value of a new key, shown only here. CredentialsFile is the file that
	// received it.
	ManagementKey   string `json:"managementKey,omitempty"`
	CredentialsFile string `json:"credentialsFile,omitempty"`
	// Warning is a problem that remains although the command succeeded.
	Warning string `json:"warning,omitempty"`
}

// ListedOrganization is an organization as a query returns it.
type ListedOrganization struct {
	Organization
	// IsPrepared is false while its calls are refused, since its creation is not complete.
	IsPrepared bool `json:"isPrepared"`
	// Projects counts its projects, archived ones too.
	Projects int `json:"projects"`
}

// Project is a project as a command returns it. A missing cap is null.
type Project struct {
	ID           uuid.UUID    `json:"id"`
	Organization string       `json:"organization"`
	Slug         string       `json:"slug"`
	Name         string       `json:"name"`
	IsArchived   bool         `json:"isArchived"`
	IngestionCap *int64       `json:"ingestionCap"`
	CreditCap    *json.Number `json:"creditCap"`
}

// ListedProject is a project as a query returns it.
type ListedProject struct {
	Project
	CreatedAt      time.Time `json:"createdAt"`
	OrganizationID uuid.UUID `json:"-"`
}

// ProjectUse is a project with what it holds and used this month. Caps are null if they are not set. Credits are null
// without metering.
type ProjectUse struct {
	Slug            string       `json:"slug"`
	Name            string       `json:"name"`
	Description     string       `json:"description"`
	IsArchived      bool         `json:"isArchived"`
	MemoryCount     int64        `json:"memoryCount"`
	IngestionCap    *int64       `json:"ingestionCap"`
	MonthIngestions int64        `json:"monthIngestions"`
	CreditCap       *json.Number `json:"creditCap"`
	MonthCredits    *json.Number `json:"monthCredits"`
	CreatedAt       time.Time    `json:"createdAt"`
}

// Key is a project key. Its clear value begins with Prefix and ends with Suffix.
type Key struct {
	ID string `json:"id"`
	// Project is the slug of its project.
	Project   string     `json:"project"`
	Name      string     `json:"name"`
	Prefix    string     `json:"keyPrefix"`
	Suffix    string     `json:"keySuffix"`
	CreatedAt time.Time  `json:"createdAt"`
	RevokedAt *time.Time `json:"revokedAt"`
	// Key is the clear value, only of a key that is created or revealed.
	Key string `json:"key,omitempty" db:"-"`
	// Warning is a problem that remains although the command succeeded.
	Warning string `json:"warning,omitempty" db:"-"`
}

// Cap returns a cap in credits, nil without one.
func Cap(tenths *int64) *json.Number {
	if tenths == nil {
		return nil
	}
	return new(metering.Credits(*tenths))
}

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
