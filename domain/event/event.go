// Package event defines a stored event: a past-tense struct with a stored name, and its metadata.
package event

import (
	"reflect"
	"time"

	"github.com/google/uuid"
)

// Event is a fact. It is a plain struct of the package of its aggregate, it is encoded as JSON, and
// its EventType is the name it is stored under, "aggregate.verb-phrase.vN", which never changes.
//
// A name may get optional fields later, whose absence means what the event meant before. Each has the
// tag since:"N" with the step that brought it, from 2, and is left out of the payload if it is not set.
type Event interface {
	EventType() string
}

// ProjectOf returns the project that an event belongs to: its field ProjectID, also one of an embedded struct. It is
// zero for an event of an organization or of the whole log.
func ProjectOf(e Event) uuid.UUID {
	of := reflect.Indirect(reflect.ValueOf(e))
	if of.Kind() != reflect.Struct {
		return uuid.Nil
	}
	field := of.FieldByName("ProjectID")
	if !field.IsValid() {
		return uuid.Nil
	}
	return field.Interface().(uuid.UUID) // a test of the catalogue holds the type
}

// Meta is stored with every event: its principal, request and command, its cause and its time. In the
// store a salt follows it (WithSalt), which differs for each event.
type Meta struct {
	// RequestID is the X-Request-Id of the request that caused the event, or zero for background work.
	RequestID uuid.UUID `json:"requestId,omitzero"`
	// CommandID is the id of the command; event ids derive from it (see ID).
	CommandID uuid.UUID `json:"commandId"`
	// Principal names the caller: "key:<id>", "management-key:<id>", "webhook:<id>", "person:<id>",
	// "agent:<id>", "pipeline", "finisher" or "operator:<name>", the person at the machine of the service.
	Principal string `json:"principal,omitempty"`
	// Reason is why an operator did it, as that person wrote it, "" for none.
	Reason string `json:"reason,omitempty"`
	// CausationID is the id of the event that this one answers to, zero when a request caused it.
	CausationID uuid.UUID `json:"$causationId,omitzero"`
	// CorrelationID is shared by everything that one request set off.
	CorrelationID uuid.UUID `json:"$correlationId,omitzero"`
	// Schema is the step of the event: the least at which it has every field that this event sets.
	Schema int `json:"schema"`
	// At is the time of the command, in UTC, at microsecond precision: when the call was received, or
	// the clock of the background work. The store's own clock counts for nothing.
	At time.Time `json:"at"`
}

// FirstStep is the step of an event that sets no field which its name got later.
const FirstStep = 1

// NewMeta returns the metadata of a new command of a principal that no call caused.
func NewMeta(principal string, at time.Time) Meta {
	return Meta{CommandID: uuid.New(), Principal: principal, At: at}
}

// Of returns the metadata of a command about an operation: its send, deletion or identity.
func (m Meta) Of(operation uuid.UUID) Meta {
	m.CorrelationID = operation
	return m
}

// ID derives the id of the n-th event of a command, so that a repeated append is recognised by the
// store instead of being stored twice.
func ID(command uuid.UUID, n int) uuid.UUID {
	var seed [8]byte
	for i := range seed {
		seed[i] = byte(n >> (8 * i))
	}
	return uuid.NewSHA1(command, seed[:])
}
