package audit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"
)

// Fields is what a leaf has of its event.
type Fields struct {
	Organization uuid.UUID `json:"organizationId"`
	EventID      uuid.UUID `json:"eventId"`
	Stream       string    `json:"stream"`
	Revision     int64     `json:"revision"`
	Type         string    `json:"type"`
	// At is the time, as the metadata has it.
	At string `json:"at"`
	// Metadata and Data are the salted hashes of the two.
	Metadata []byte `json:"metadata"`
	Data     []byte `json:"data"`
}

// errNoLeaf is returned for bytes that are no leaf.
var errNoLeaf = errors.New("no leaf of an event")

// Leaf returns the bytes of the leaf.
func (f Fields) Leaf() []byte {
	leaf := []byte(head)
	for _, field := range [][]byte{
		f.Organization[:], f.EventID[:], []byte(f.Stream), binary.BigEndian.AppendUint64(nil, uint64(f.Revision)),
		[]byte(f.Type), []byte(f.At), f.Metadata, f.Data,
	} {
		leaf = append(binary.BigEndian.AppendUint32(leaf, uint32(len(field))), field...)
	}
	return leaf
}

// ParseLeaf reads the fields of a leaf.
func ParseLeaf(leaf []byte) (f Fields, err error) {
	rest, ok := bytes.CutPrefix(leaf, []byte(head))
	next := func() (field []byte) {
		if len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
			ok, rest = false, nil
			return nil
		}
		n := 4 + int(binary.BigEndian.Uint32(rest))
		field, rest = rest[4:n], rest[n:]
		return field
	}
	organization, id := next(), next()
	f.Stream = string(next())
	revision := next()
	f.Type, f.At = string(next()), string(next())
	f.Metadata, f.Data = next(), next()
	if !ok || len(rest) > 0 || len(organization) != len(f.Organization) || len(id) != len(f.EventID) ||
		len(revision) != 8 || binary.BigEndian.Uint64(revision) > math.MaxInt64 ||
		len(f.Metadata) != len(Record{}) || len(f.Data) != len(Record{}) {
		return Fields{}, errNoLeaf
	}
	f.Organization, f.EventID = uuid.UUID(organization), uuid.UUID(id)
	f.Revision = int64(binary.BigEndian.Uint64(revision))
	return f, nil
}

// Check checks that stored metadata and data are those that the leaf was made of.
func (f Fields) Check(meta, data []byte) error {
	leaf, err := Event{
		Organization: f.Organization, ID: f.EventID, Stream: f.Stream, Revision: f.Revision, Type: f.Type,
		Meta: meta, Data: data,
	}.Leaf()
	if err == nil && !bytes.Equal(leaf, f.Leaf()) {
		err = fmt.Errorf("metadata and data are not those of event %s", f.EventID)
	}
	return err
}
