// Package datapoint decides everything about one source id: revisions, re-sends, moves between
// audiences, deletion.
//
// Each event carries the state that the next decision needs, so a decision reads the last event of
// the stream only.
package datapoint

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
)

// Text is a piece of customer text, inline, or in a blob if the event would exceed blob.InlineLimit.
type Text struct {
	Inline string    `json:"inline,omitempty"`
	Blob   *blob.Ref `json:"blob,omitempty"`
}

// Body is the content of one revision. Metadata is JSON as sent, nil for none.
type Body struct {
	Content  Text  `json:"content"`
	Metadata *Text `json:"metadata,omitempty"`
}

// Send is the send that an event belongs to, and its cost.
type Send struct {
	ProjectID   uuid.UUID `json:"projectId"`
	IngestionID uuid.UUID `json:"ingestionId"`
	// Ordinal is the position of the item in its batch, 0 for a single send; Items is how many items
	// the send has.
	Ordinal int `json:"ordinal"`
	Items   int `json:"items"`
	// AcceptedAt is the time of the request, in UTC, at microsecond precision.
	AcceptedAt time.Time `json:"acceptedAt"`
	RequestID  uuid.UUID `json:"requestId"`
	// Commit is the position of the batch's commit, at which the item takes effect; 0 for a single
	// send.
	Commit uint64 `json:"commit,omitempty"`
	// Bytes is the size of the content in UTF-8, CreditTenths its price in tenths of a credit (0
	// if nothing is processed), Month the UTC calendar month that it counts in ("2026-11").
	Bytes        int64  `json:"bytes"`
	CreditTenths int64  `json:"creditTenths"`
	Month        string `json:"month"`
}

// State is the state of a data point after an event, in effect order.
type State struct {
	SourceID string `json:"sourceId"`
	// Revision is the number of the newest revision, from 1; LastNumber the highest number given,
	// also to history.
	Revision   int `json:"revision"`
	LastNumber int `json:"lastNumber"`
	// BodyAt is the stream revision of the event that holds the body of Revision.
	BodyAt int64 `json:"bodyAt"`
	// Content is the SHA-256 of the content, Metadata of its canonical JSON ("" for none), in
	// lower-case hexadecimal.
	Content    string    `json:"content"`
	Metadata   string    `json:"metadata,omitempty"`
	Label      *string   `json:"label,omitempty"`
	OccurredAt time.Time `json:"occurredAt"`
	// Audience is the audience's own id, zero for project-visible.
	Audience uuid.UUID `json:"audience,omitzero"`
	// IngestionID is the send of Revision.
	IngestionID uuid.UUID `json:"ingestionId"`
}

// States is in each event of a data point: the effect of the event itself and, if later effects
// were stored before it (the event is historic), the state at the head of the stream.
type States struct {
	Effect  State  `json:"effect"`
	Current *State `json:"current,omitempty"`
}

// Head is the state that the next decision starts from.
func (s States) Head() State {
	if s.Current != nil {
		return *s.Current
	}
	return s.Effect
}

// Historic reports whether the event was stored after later effects.
func (s States) Historic() bool { return s.Current != nil }

// RevisionAccepted is a new revision: changed content, label, metadata or timestamp, or the first.
// Its number is Effect.Revision.
type RevisionAccepted struct {
	Send
	States
	Body
	// Author is the identity of the author, "" if the send names none.
	Author string `json:"author,omitempty"`
}

func (RevisionAccepted) EventType() string { return "datapoint.revision-accepted.v1" }

// IsStray reports whether an event at a revision of its stream was decided for the first one: somebody else had
// soft-deleted the stream in the store, which took it as one without events. The send was not acknowledged.
func (e RevisionAccepted) IsStray(revision int64) bool {
	return revision > 0 && e.Effect.BodyAt == 0 && e.Current == nil
}

// Sender is the author of a send that makes no revision. The erasure of a person deletes the data points of which the
// person wrote a revision. This send wrote none, so its data point stays, and its events must not name the person.
type Sender struct {
	// AuthorID is the identity record (stream.IdentityID), zero if the send names no author.
	AuthorID uuid.UUID `json:"authorId,omitzero"`
}

// Moved is a send that changed only the audience. Nothing is processed again.
type Moved struct {
	Send
	States
	Sender
}

func (Moved) EventType() string { return "datapoint.moved.v1" }

// Resent is a send that changed nothing.
type Resent struct {
	Send
	States
	Sender
}

func (Resent) EventType() string { return "datapoint.resent.v1" }

// Deleted deletes a data point. A tombstone follows once the facts that outlive it are retained.
type Deleted struct {
	ProjectID  uuid.UUID `json:"projectId"`
	DeletionID uuid.UUID `json:"deletionId"`
	RequestID  uuid.UUID `json:"requestId"`
	DeletedAt  time.Time `json:"deletedAt"`
	// IngestionID is the send of the newest revision.
	IngestionID uuid.UUID `json:"ingestionId"`
	// Single is true if this event is the whole operation (the deletion of one id), false in a fan-out.
	Single bool `json:"single"`
}

func (Deleted) EventType() string { return "datapoint.deleted.v1" }

// NodeID is the id under which a revision appears as a document of recall and as a node of the
// trace.
func NodeID(dataPoint uuid.UUID, revision int) uuid.UUID {
	return uuid.NewSHA1(dataPoint, []byte("revision:"+strconv.Itoa(revision)))
}
