// Package webhook maps events of other systems to data points: where in the body of an event the
// text, the time and the id are, and which events are ingested at all.
package webhook

import "time"

// Settings are what a webhook does with its events. Paths are written as ParsePath reads them.
type Settings struct {
	// Name has 1 to limit.WebhookName characters.
	Name string `json:"name"`
	// ContentPath leads to the text of the data point. It is required.
	ContentPath string `json:"contentPath"`
	// OccurredAtPath leads to the timestamp, "" for the time of receipt.
	OccurredAtPath string `json:"occurredAtPath,omitempty"`
	// IDPath leads to the id of the data point, "" for the id of the event.
	IDPath string `json:"idPath,omitempty"`
	// Audience is the slug of an audience of the project, "" for project-visible.
	Audience string `json:"audience,omitempty"`
	// Filters are at most limit.WebhookFilters. An event is ingested only if all of them match.
	Filters []Filter `json:"filters,omitempty"`
}

// Filter is a condition on an event.
type Filter struct {
	Path     string   `json:"path"`
	Operator Operator `json:"operator"`
	// Values is one value for Is and Contains, 1 to limit.WebhookFilterValues for IsAnyOf, none for
	// Exists.
	Values []string `json:"values,omitempty"`
}

// Operator is how a filter compares.
type Operator string

// The operators.
const (
	Is       Operator = "is"
	IsAnyOf  Operator = "is any of"
	Contains Operator = "contains"
	Exists   Operator = "exists"
)

// Event is what a body becomes.
type Event struct {
	// DroppedBy is why the event is not ingested, "" if it is: the first filter that does not match,
	// or NoContent.
	DroppedBy string
	// Content is valid UTF-8 and not blank.
	Content string
	// OccurredAt is zero if it is the time of receipt.
	OccurredAt time.Time
	// ID is "" if it is the id of the event.
	ID string
}

// NoContent is Event.DroppedBy if the content path leads to nothing or to a blank text.
const NoContent = "content path resolved to nothing"
