// Package pipeline holds what the background work says of the log as a whole, and not of one send.
package pipeline

import "time"

// Searchable says that all that was captured up to a position of the log has been searchable since a time. It stands
// for an ingestion.Indexed of each send that was captured by then, of which no item has failed and no data point is
// deleted where the event stands. Positions never fall from one event to the next.
type Searchable struct {
	Position     uint64    `json:"position"`
	SearchableAt time.Time `json:"searchableAt"`
}

// EventType implements event.Event.
func (Searchable) EventType() string { return "pipeline.searchable.v1" }
