// Package audit is what an event leaves to an audit log: its leaf, and the record of it, which
// outlives the event.
//
// The record proves that an event was stored, and with which bytes, to those who still have them. It
// shows nothing of an event that has left the log: each event is hashed with a random salt, which
// leaves with it.
package audit

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// head is the first line of a leaf: the format that the rest of it is in.
const head = "annals-leaf/1\n"

// Record is the SHA-256 of the leaf of an event.
type Record [sha256.Size]byte

// Event is an event as the log stores it, with the organization that it belongs to.
type Event struct {
	// Organization is that of the stream, zero for a stream that belongs to none, such as the registry.
	Organization uuid.UUID
	ID           uuid.UUID
	Stream       string
	Revision     int64
	Type         string
	// Meta is the stored metadata with its time and its salt, Data the stored payload.
	Meta, Data []byte
}

// Leaf returns the bytes that the record is the hash of. It fails if the metadata lacks its salt or its
// time.
func (e Event) Leaf() ([]byte, error) {
	meta, salt, err := event.SplitSalt(e.Meta)
	if err != nil {
		return nil, fmt.Errorf("metadata of event %s: %w", e.ID, err)
	}
	var stored struct {
		At string `json:"at"`
	}
	if err := json.Unmarshal(meta, &stored); err != nil {
		return nil, fmt.Errorf("metadata of event %s: %w", e.ID, err)
	}
	if stored.At == "" {
		return nil, fmt.Errorf("metadata of event %s: it has no time", e.ID)
	}
	return Fields{
		e.Organization, e.ID, e.Stream, e.Revision, e.Type, stored.At, salted(salt, meta), salted(salt, e.Data),
	}.Leaf(), nil
}

// Record returns the record of the event. It fails as Leaf does.
func (e Event) Record() (Record, error) {
	leaf, err := e.Leaf()
	return sha256.Sum256(leaf), err
}

func salted(salt [event.SaltSize]byte, data []byte) []byte {
	h := sha256.New()
	h.Write(salt[:])
	h.Write(data)
	return h.Sum(nil)
}
