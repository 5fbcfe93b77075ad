// Package event defines a stored event: a past-tense struct with a stored name.
package event

import "github.com/google/uuid"

// Event is a fact. It is a plain struct of the package of its aggregate, it is encoded as JSON, and
// its EventType is the name it is stored under, "aggregate.verb-phrase.vN", which never changes.
type Event interface {
	EventType() string
}

// OfProject is an event that belongs to one project. Others concern an organization or the whole log.
type OfProject interface {
	Event
	// Project returns the project that the event belongs to.
	Project() uuid.UUID
}

// Meta is stored with every event: its principal, request and command, and its cause.
type Meta struct {
	// RequestID is the X-Request-Id of the request that caused the event, or zero for background work.
	RequestID uuid.UUID `json:"requestId,omitzero"`
	// CommandID is the id of the command; event ids derive from it (see ID).
	CommandID uuid.UUID `json:"commandId"`
	// Principal names the caller: "key:<id>", "management-key:<id>", "pipeline", "finisher" or
	// "operator".
	Principal string `json:"principal,omitempty"`
	// CausationID is the id of the event that this one answers to, zero when a request caused it.
	CausationID uuid.UUID `json:"$causationId,omitzero"`
	// CorrelationID is shared by everything that one request set off.
	CorrelationID uuid.UUID `json:"$correlationId,omitzero"`
	// Schema is the version of this metadata.
	Schema int `json:"schema"`
}

// MetaSchema is the current version of Meta.
const MetaSchema = 1

// ID derives the id of the n-th event of a command, so that a repeated append is recognised by the
// store instead of being stored twice.
func ID(command uuid.UUID, n int) uuid.UUID {
	var seed [8]byte
	for i := range seed {
		seed[i] = byte(n >> (8 * i))
	}
	return uuid.NewSHA1(command, seed[:])
}
