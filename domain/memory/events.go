// Package memory holds what was derived from the revisions of one data point, and the attempts at
// it.
//
// A stream "memory-<data point>" is written by one worker at a time. The lock is the append of the
// memories at an exact stream revision or, if a model is called, of a started derivation.
package memory

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
)

// Memory is one readable line derived from one revision, with the exact span of the source that
// proves it.
type Memory struct {
	ID   uuid.UUID `json:"id"`
	Kind string    `json:"kind"`
	// Content is the line itself.
	Content string `json:"content"`
	// Excerpt is the text of the source, verbatim; Start and End are byte offsets into the content,
	// End exclusive. A memory derived from label, metadata or author has Start == End == 0 and cites
	// the first sentence of the content.
	Excerpt string `json:"excerpt"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
	// Subject and Attribute say what a claim is about, folded for comparison; "" for other kinds.
	Subject   string `json:"subject,omitempty"`
	Attribute string `json:"attribute,omitempty"`
	// Entities are the names in the line, as written.
	Entities []string `json:"entities,omitempty"`
	// ResolvedFrom and ResolvedTo are the span of time that a temporal anchor names, half open.
	ResolvedFrom time.Time `json:"resolvedFrom,omitzero"`
	ResolvedTo   time.Time `json:"resolvedTo,omitzero"`
	// Inputs are the ids of the nodes it was built from: the source's node, or other memories of the
	// same revision.
	Inputs []uuid.UUID `json:"inputs"`
}

// ID is the id of the n-th memory of a revision.
func ID(dataPoint uuid.UUID, revision, n int) uuid.UUID {
	return uuid.NewSHA1(dataPoint, []byte("memory:"+strconv.Itoa(revision)+":"+strconv.Itoa(n)))
}

// DerivationStarted records an attempt before its work begins, if it calls a model or follows an
// attempt that was cut off. Attempt counts from 1 and starts again after a retry.
type DerivationStarted struct {
	ProjectID   uuid.UUID `json:"projectId"`
	IngestionID uuid.UUID `json:"ingestionId"`
	Ordinal     int       `json:"ordinal"`
	Revision    int       `json:"revision"`
	Attempt     int       `json:"attempt"`
	// Round counts the retries of the send, from 0.
	Round     int       `json:"round"`
	StartedAt time.Time `json:"startedAt"`
}

func (DerivationStarted) EventType() string { return "memory.derivation-started.v1" }

// Derived is what an extractor read in one revision. It is stored once: a replay asks no model.
type Derived struct {
	ProjectID   uuid.UUID `json:"projectId"`
	IngestionID uuid.UUID `json:"ingestionId"`
	Ordinal     int       `json:"ordinal"`
	Revision    int       `json:"revision"`
	// Extractor names what derived it, with its version ("builtin/1").
	Extractor string    `json:"extractor"`
	DerivedAt time.Time `json:"derivedAt"`
	// OccurredAt is the time of the revision, which is the time of each of its memories.
	OccurredAt time.Time `json:"occurredAt"`
	Memories   []Memory  `json:"memories,omitempty"`
	// Blob holds the memories as a JSON array where they would pass blob.InlineLimit.
	Blob *blob.Ref `json:"blob,omitempty"`
}

func (Derived) EventType() string { return "memory.derived.v1" }

// Failed ends an attempt. Final is true when no further attempt is made before a retry.
type Failed struct {
	ProjectID   uuid.UUID `json:"projectId"`
	IngestionID uuid.UUID `json:"ingestionId"`
	Ordinal     int       `json:"ordinal"`
	Revision    int       `json:"revision"`
	Attempt     int       `json:"attempt"`
	Round       int       `json:"round"`
	// Code is one of the failure codes of the ingestion status; Message is for people and holds no
	// customer text.
	Code     string    `json:"code"`
	Message  string    `json:"message"`
	FailedAt time.Time `json:"failedAt"`
	Final    bool      `json:"final"`
}

func (Failed) EventType() string { return "memory.failed.v1" }

// Encode is the JSON array that a blob of memories holds.
func Encode(memories []Memory) ([]byte, error) { return json.Marshal(memories) }

// Decode reads what Encode wrote.
func Decode(data []byte) ([]Memory, error) {
	var memories []Memory
	err := json.Unmarshal(data, &memories)
	return memories, err
}
