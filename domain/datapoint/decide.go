package datapoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
)

// Ingest is a send of one data point, with everything looked up that the decision needs. Nil means
// omitted.
type Ingest struct {
	Send
	// Author is the identity of the author, AuthorID its record (stream.IdentityID): "" and zero without
	// one.
	Author   string
	AuthorID uuid.UUID
	// Reauthored is true if the author is not that of the newest revision, and this alone makes a revision.
	Reauthored bool
	SourceID   string
	// ContentDigest is the SHA-256 of the content in lower-case hexadecimal.
	ContentDigest string
	Content       Text
	Label         *string
	OccurredAt    *time.Time
	// MetadataSent is false if the metadata is omitted. MetadataDigest is of its canonical JSON.
	MetadataSent   bool
	MetadataDigest string
	Metadata       *Text
	// Audience is the audience's own id, zero for project-visible.
	Audience uuid.UUID
}

// Base is what a decision is made on: the state in effect before the send, and the head of the
// stream.
type Base struct {
	// State is the state before the send in effect order, nil for none.
	State *State
	// LastNumber is the highest revision number given in the stream.
	LastNumber int
	// Next is the stream revision that the event will have.
	Next int64
	// Later is the state at the head of the stream if later effects are stored already: then the send
	// is historic. Otherwise it is nil.
	Later *State
}

// Decision is what a send is on a base.
type Decision struct {
	Base Base
	// Outcome is ingestion.Created, Updated, Moved or Unchanged, with the revision of the data point after the send.
	Outcome ingestion.Outcome
	after   State
}

// Decide decides what the send is on this base. Where its texts are stored may be decided after that.
func (b Base) Decide(c Ingest) Decision {
	d := Decision{Base: b}
	if b.State != nil {
		d.after = b.State.with(c)
	} else if d.after = (State{}).with(c); c.OccurredAt == nil {
		d.after.OccurredAt = c.AcceptedAt
	}
	d.Outcome.Outcome = b.outcome(c, d.after)
	d.after.LastNumber = b.LastNumber
	if d.Outcome.CreatesRevision() {
		d.after.LastNumber++
		d.after.Revision, d.after.BodyAt, d.after.IngestionID = d.after.LastNumber, b.Next, c.IngestionID
	}
	d.Outcome.Revision = d.after.Revision
	return d
}

func (b Base) outcome(c Ingest, after State) string {
	switch {
	case b.State == nil && b.LastNumber == 0:
		return ingestion.Created
	case b.State == nil, c.Reauthored, after.Content != b.State.Content, !equal(after.Label, b.State.Label),
		after.Metadata != b.State.Metadata, !after.OccurredAt.Equal(b.State.OccurredAt):
		return ingestion.Updated
	case after.Audience != b.State.Audience:
		return ingestion.Moved
	default:
		return ingestion.Unchanged
	}
}

// NeedsStoredMetadata reports whether the new revision of the send copies the metadata of the event at State.BodyAt.
func (d Decision) NeedsStoredMetadata(c Ingest) bool {
	return !c.MetadataSent && d.Base.State != nil && d.Base.State.Metadata != "" && d.Outcome.CreatesRevision()
}

// Event returns the event of the send that was decided. stored is the stored metadata, required if NeedsStoredMetadata.
func (d Decision) Event(c Ingest, stored *Text) event.Event {
	states := States{Effect: d.after}
	if d.Base.Later != nil {
		current := *d.Base.Later
		current.LastNumber = d.after.LastNumber
		states.Current = &current
	}
	if !d.Outcome.CreatesRevision() {
		c.CreditTenths = 0 // nothing is processed, so nothing is charged
	}
	switch d.Outcome.Outcome {
	case ingestion.Moved:
		return &Moved{Send: c.Send, States: states, Sender: Sender{c.AuthorID}}
	case ingestion.Unchanged:
		return &Resent{Send: c.Send, States: states, Sender: Sender{c.AuthorID}}
	default:
		body := Body{Content: c.Content, Metadata: c.Metadata}
		if !c.MetadataSent {
			body.Metadata = stored
		}
		return &RevisionAccepted{Send: c.Send, States: states, Body: body, Author: c.Author}
	}
}

// with returns the state after the send, without numbers and positions. What is omitted keeps its
// stored value, but an omitted audience makes the data point project-visible.
func (s State) with(c Ingest) State {
	s.SourceID = c.SourceID
	s.Content = c.ContentDigest
	s.Audience = c.Audience
	if c.Label != nil {
		s.Label = c.Label
	}
	if c.OccurredAt != nil {
		s.OccurredAt = *c.OccurredAt
	}
	if c.MetadataSent {
		s.Metadata = c.MetadataDigest
	}
	return s
}

// OutcomeOf returns the outcome of an event of a send, with its revision. ok is false for other
// events.
func OutcomeOf(e event.Event) (outcome ingestion.Outcome, ok bool) {
	switch e := e.(type) {
	case *RevisionAccepted:
		if e.Effect.Revision == 1 {
			return ingestion.Outcome{Outcome: ingestion.Created, Revision: 1}, true
		}
		return ingestion.Outcome{Outcome: ingestion.Updated, Revision: e.Effect.Revision}, true
	case *Moved:
		return ingestion.Outcome{Outcome: ingestion.Moved, Revision: e.Effect.Revision}, true
	case *Resent:
		return ingestion.Outcome{Outcome: ingestion.Unchanged, Revision: e.Effect.Revision}, true
	default:
		return ingestion.Outcome{}, false
	}
}

// SendOf returns the send and the states of an event. ok is false for a deletion.
func SendOf(e event.Event) (send Send, states States, ok bool) {
	switch e := e.(type) {
	case *RevisionAccepted:
		return e.Send, e.States, true
	case *Moved:
		return e.Send, e.States, true
	case *Resent:
		return e.Send, e.States, true
	default:
		return Send{}, States{}, false
	}
}

// AuthorOf returns the identity of the author of a send by name or, if the send made no revision, by
// record; "" and zero without one.
func AuthorOf(e event.Event) (name string, record uuid.UUID) {
	switch e := e.(type) {
	case *RevisionAccepted:
		return e.Author, uuid.Nil
	case *Moved:
		return "", e.AuthorID
	case *Resent:
		return "", e.AuthorID
	default:
		return "", uuid.Nil
	}
}

func equal(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// Digest is the SHA-256 of bytes in lower-case hexadecimal; of a content it is the default source
// id.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// CanonicalMetadata returns metadata in a form that shows whether it changed: keys sorted, no white
// space, of a repeated key the last value, numbers as written.
func CanonicalMetadata(raw json.RawMessage) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("metadata is not JSON: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("metadata has more after its JSON value")
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
