package storage

import (
	"bytes"
	"errors"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/annals-project/annals/eventstore/node/wire"
)

// Field numbers of streams.proto, from ReadResp down.
const (
	fieldRespEvent = 1

	fieldEventRecord   = 1
	fieldEventPosition = 3

	fieldRecordID       = 1
	fieldRecordStream   = 2
	fieldRecordRevision = 3
	fieldRecordPrepare  = 4
	fieldRecordCommit   = 5
	fieldRecordSystem   = 6
	fieldRecordMeta     = 7
	fieldRecordData     = 8

	fieldStreamName = 3
)

// Proposed is an event to append, encoded except for its place in the log.
type Proposed struct {
	id uuid.UUID
	// fixed is the part of the record that does not depend on the place.
	fixed []byte
	// metadata is the data of an event that is JSON in a metastream, else nil.
	metadata []byte
}

// Propose encodes an event to append to a stream. It copies data and meta.
func Propose(stream string, id uuid.UUID, typ string, isJSON bool, data, meta []byte) Proposed {
	contentType := wire.ContentTypeRaw
	if isJSON {
		contentType = wire.ContentTypeJSON
	}
	most, least := wire.UUIDHalves(id)
	b := make([]byte, 0, len(stream)+len(typ)+len(data)+len(meta)+128)

	structured := wire.SizeUint(wire.FieldUUIDMost, most) + wire.SizeUint(wire.FieldUUIDLeast, least)
	b = protowire.AppendTag(b, fieldRecordID, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(wire.FieldUUIDStructured)+protowire.SizeBytes(structured)))
	b = protowire.AppendTag(b, wire.FieldUUIDStructured, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(structured))
	b = wire.AppendUint(b, wire.FieldUUIDMost, most)
	b = wire.AppendUint(b, wire.FieldUUIDLeast, least)

	b = protowire.AppendTag(b, fieldRecordStream, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(fieldStreamName)+protowire.SizeBytes(len(stream))))
	b = protowire.AppendTag(b, fieldStreamName, protowire.BytesType)
	b = protowire.AppendString(b, stream)

	b = wire.AppendEntry(b, fieldRecordSystem, wire.KeyType, typ)
	b = wire.AppendEntry(b, fieldRecordSystem, wire.KeyContentType, contentType)
	b = protowire.AppendTag(b, fieldRecordMeta, protowire.BytesType)
	b = protowire.AppendBytes(b, meta)
	b = protowire.AppendTag(b, fieldRecordData, protowire.BytesType)
	b = protowire.AppendBytes(b, data)

	p := Proposed{id: id, fixed: b}
	if IsMeta(stream) && isJSON {
		p.metadata = bytes.Clone(data)
	}
	return p
}

// Record completes an event with its place and time, and returns the bytes of a ReadResp message.
func (p Proposed) Record(revision int64, position uint64, created string) []byte {
	system := wire.SizeEntry(fieldRecordSystem, wire.KeyCreated, created)
	inner := len(p.fixed) + system + wire.SizeUint(fieldRecordRevision, uint64(revision)) +
		wire.SizeUint(fieldRecordPrepare, position) + wire.SizeUint(fieldRecordCommit, position)
	outer := protowire.SizeTag(fieldEventRecord) + protowire.SizeBytes(inner) + wire.SizeUint(fieldEventPosition, position)

	b := make([]byte, 0, protowire.SizeTag(fieldRespEvent)+protowire.SizeBytes(outer))
	b = protowire.AppendTag(b, fieldRespEvent, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(outer))
	b = protowire.AppendTag(b, fieldEventRecord, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(inner))
	b = append(b, p.fixed...)
	b = wire.AppendUint(b, fieldRecordRevision, uint64(revision))
	b = wire.AppendUint(b, fieldRecordPrepare, position)
	b = wire.AppendUint(b, fieldRecordCommit, position)
	b = wire.AppendEntry(b, fieldRecordSystem, wire.KeyCreated, created)
	return wire.AppendUint(b, fieldEventPosition, position)
}

// Recorded is what the engine and the node read of a stored event. Its slices are parts of the
// record.
type Recorded struct {
	ID       uuid.UUID
	Stream   []byte
	Revision int64
	Position uint64
	Type     []byte
	Created  time.Time
	Data     []byte
}

// ErrDamagedRecord means that a stored event does not decode or fails its checksum.
var ErrDamagedRecord = errors.New("stored event is damaged")

// ParseRecord reads a stored event.
func ParseRecord(b []byte) (Recorded, error) {
	var r Recorded
	resp, ok := wire.FindBytes(b, fieldRespEvent)
	if !ok {
		return r, ErrDamagedRecord
	}
	inner, ok := wire.FindBytes(resp, fieldEventRecord)
	if !ok {
		return r, ErrDamagedRecord
	}
	var most, least uint64
	ok = wire.EachField(inner, func(number protowire.Number, v uint64, sub []byte) bool {
		switch number {
		case fieldRecordID:
			structured, found := wire.FindBytes(sub, wire.FieldUUIDStructured)
			return found && wire.EachField(structured, func(half protowire.Number, v uint64, _ []byte) bool {
				switch half {
				case wire.FieldUUIDMost:
					most = v
				case wire.FieldUUIDLeast:
					least = v
				}
				return true
			})
		case fieldRecordStream:
			var found bool
			r.Stream, found = wire.FindBytes(sub, fieldStreamName)
			return found
		case fieldRecordRevision:
			r.Revision = int64(v)
		case fieldRecordCommit:
			r.Position = v
		case fieldRecordSystem:
			return r.system(sub)
		case fieldRecordData:
			r.Data = sub
		}
		return true
	})
	if !ok || r.Position == 0 || r.Revision < 0 || len(r.Type) == 0 {
		return Recorded{}, ErrDamagedRecord
	}
	r.ID = wire.UUIDFromHalves(most, least)
	return r, nil
}

// system reads one entry of the system metadata.
func (r *Recorded) system(entry []byte) bool {
	key, ok := wire.FindBytes(entry, wire.FieldMapKey)
	if !ok {
		return false
	}
	value, ok := wire.FindBytes(entry, wire.FieldMapValue)
	if !ok {
		return false
	}
	switch string(key) {
	case wire.KeyType:
		r.Type = value
	case wire.KeyCreated:
		ticks, ok := wire.ParseTicks(value)
		if !ok {
			return false
		}
		r.Created = ticks
	}
	return true
}
