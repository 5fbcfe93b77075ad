// Package audit is what an event leaves to an audit log: its leaf, and the record of it, which
// outlives the event.
//
// The record proves that an event was stored, and with which bytes, to those who still have them. It
// shows nothing of an event that has left the log: each event is hashed with a random salt, which
// leaves with it.
package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

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

// Kept is the record of an event that leaves the log, with what a rebuild needs to put it where the
// event was.
type Kept struct {
	EventID uuid.UUID
	// Position is that of the event in the log. The commit and the prepare position of the store are
	// the same.
	Position uint64
	Record   Record
}

// KeptList is the records of consecutive events of one stream. It is stored as one text: base64 of
// 56 bytes for each event, which are its id, its position (8 bytes, big-endian) and its record.
type KeptList []Kept

const (
	idSize   = len(uuid.UUID{})
	keptSize = idSize + 8 + len(Record{})
)

// MarshalText implements encoding.TextMarshaler.
func (l KeptList) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, len(l)*keptSize)
	for _, k := range l {
		raw = append(raw, k.EventID[:]...)
		raw = append(binary.BigEndian.AppendUint64(raw, k.Position), k.Record[:]...)
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *KeptList) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err == nil && len(raw)%keptSize != 0 {
		err = fmt.Errorf("%d bytes are not %d for each event", len(raw), keptSize)
	}
	if err != nil {
		return fmt.Errorf("list of kept records: %w", err)
	}
	*l = make(KeptList, 0, len(raw)/keptSize)
	for ; len(raw) > 0; raw = raw[keptSize:] {
		position := binary.BigEndian.Uint64(raw[idSize:])
		*l = append(*l, Kept{uuid.UUID(raw[:idSize]), position, Record(raw[idSize+8 : keptSize])})
	}
	return nil
}

// PolicyText is a tlog-policy file: the keys of a log, and the witnesses with the quorum of another policy, "" for
// none.
func PolicyText(verifiers []string, witnesses string) string {
	var b strings.Builder
	for _, key := range verifiers {
		b.WriteString("log " + key + "\n")
	}
	if witnesses == "" {
		b.WriteString("quorum none\n")
	}
	for line := range strings.Lines(witnesses) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "log" && !strings.HasPrefix(fields[0], "#") {
			b.WriteString(strings.Join(fields, " ") + "\n")
		}
	}
	return b.String()
}
