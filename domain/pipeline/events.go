// Package pipeline holds what background work records about the log as a whole, not about one send.
package pipeline

import "time"

// Searchable records that everything captured up to Position has been searchable since
// SearchableAt. It replaces an ingestion.Indexed for each send that was captured by then and, at
// the position of this event, has no failed item and no deleted data point. Position never
// decreases from one event to the next.
type Searchable struct {
	Position     uint64    `json:"position"`
	SearchableAt time.Time `json:"searchableAt"`
}

func (Searchable) EventType() string { return "pipeline.searchable.v1" }
