// Package memory holds what was derived from the revisions of one data point, and the attempts at
// it.
//
// A stream "memory-<data point>" is written by one worker at a time. The lock is the append of the
// memories at an exact stream revision or, if a model is called, of a started derivation.
package memory

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
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

// SourceID is the id of the node of a revision, from which its memories are derived.
func SourceID(dataPoint uuid.UUID, revision int) uuid.UUID {
	return event.Derived(dataPoint, "revision:", strconv.Itoa(revision))
}

// ID is the id of the n-th memory of a revision.
func ID(dataPoint uuid.UUID, revision, n int) uuid.UUID {
	return event.Derived(dataPoint, "memory:", strconv.Itoa(revision)+":"+strconv.Itoa(n))
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

// Embedded is what a model makes of the meaning of a revision: a vector for each passage and each
// memory. It is stored once, in so many parts as it takes to keep each event small; a replay asks
// no model. One without vectors records that the model accepts none of the texts.
type Embedded struct {
	ProjectID uuid.UUID `json:"projectId"`
	Revision  int       `json:"revision"`
	// Model names what made the vectors; vectors of different models do not compare.
	Model string `json:"model"`
	Dims  int    `json:"dims"`
	// Part counts from 1 to Parts. A first part replaces earlier ones.
	Part       int       `json:"part"`
	Parts      int       `json:"parts"`
	Vectors    []Vector  `json:"vectors,omitempty"`
	EmbeddedAt time.Time `json:"embeddedAt"`
}

func (Embedded) EventType() string { return "memory.embedded.v1" }

// Vector is the direction of the meaning of one text: a passage of the revision, or one of its
// memories.
type Vector struct {
	// Passage counts from 0; Memory is set instead for a memory.
	Passage int       `json:"passage"`
	Memory  uuid.UUID `json:"memory,omitzero"`
	// Hash is that of the text that was embedded, SHA-256 in hex.
	Hash string `json:"hash"`
	// Code holds a signed byte for each dimension; Scale times these is the vector, whose length is 1.
	Scale float32 `json:"scale"`
	Code  []byte  `json:"code"`
}

// Quantize reduces the direction of a vector to a byte for each dimension: scale times the signed
// bytes of code has a length of about 1. ok is false if the vector has no direction.
func Quantize(vector []float32) (scale float32, code []byte, ok bool) {
	var square, most float64
	for _, x := range vector {
		square += float64(x) * float64(x)
		most = max(most, math.Abs(float64(x)))
	}
	if !(square > 0) || math.IsInf(square, 0) {
		return 0, nil, false
	}
	const steps = 127
	code = make([]byte, len(vector))
	for i, x := range vector {
		code[i] = byte(int8(math.Round(float64(x) / most * steps)))
	}
	return float32(most / steps / math.Sqrt(square)), code, true
}

// NextAttempt decides the number of the next attempt to derive a revision in a round of its send,
// after the last attempt that the stream of the data point's memories records, nil for none. ended
// reports that the revision needs no further attempt: it is derived, it failed for good, or a later
// revision was begun. A retry of the send, which is a round above 0, derives an earlier revision
// too.
func NextAttempt(last event.Event, revision, round int) (number int, ended bool) {
	switch e := last.(type) {
	case *DerivationStarted:
		if e.Revision == revision && e.Round == round {
			return e.Attempt + 1, false
		}
		return 1, e.Revision > revision && round == 0
	case *Failed:
		if e.Revision == revision && e.Round == round {
			return e.Attempt + 1, e.Final
		}
		return 1, e.Revision > revision && round == 0
	case *Derived:
		return 1, e.Revision == revision || (e.Revision > revision && round == 0)
	default:
		return 1, false
	}
}
