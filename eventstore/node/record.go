package node

import (
	"errors"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"
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

	fieldUUIDStructured = 1
	fieldUUIDMost       = 1
	fieldUUIDLeast      = 2

	fieldStreamName = 3

	fieldMapKey   = 1
	fieldMapValue = 2
)

// The system metadata that every event carries.
const (
	keyType        = "type"
	keyContentType = "content-type"
	keyCreated     = "created"
)

// proposed is an event that a client asked to append, encoded as far as it can be before its place in the log is known.
type proposed struct {
	id uuid.UUID
	// fixed is the part of the record that does not depend on the place.
	fixed []byte
	// metadata is the data of an event that is JSON in a metastream, else nil.
	metadata []byte
}

// propose encodes what is known of an event before it has its place.
func propose(stream string, id uuid.UUID, typ string, isJSON bool, data, meta []byte) proposed {
	contentType := contentTypeRaw
	if isJSON {
		contentType = contentTypeJSON
	}
	most, least := uuidHalves(id)
	b := make([]byte, 0, len(stream)+len(typ)+len(data)+len(meta)+128)

	structured := protowire.SizeTag(fieldUUIDMost) + protowire.SizeVarint(most) + protowire.SizeTag(fieldUUIDLeast) + protowire.SizeVarint(least)
	b = protowire.AppendTag(b, fieldRecordID, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(fieldUUIDStructured)+protowire.SizeBytes(structured)))
	b = protowire.AppendTag(b, fieldUUIDStructured, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(structured))
	b = appendUint(b, fieldUUIDMost, most)
	b = appendUint(b, fieldUUIDLeast, least)

	b = protowire.AppendTag(b, fieldRecordStream, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(fieldStreamName)+protowire.SizeBytes(len(stream))))
	b = protowire.AppendTag(b, fieldStreamName, protowire.BytesType)
	b = protowire.AppendString(b, stream)

	b = appendSystem(b, keyType, typ)
	b = appendSystem(b, keyContentType, contentType)
	b = protowire.AppendTag(b, fieldRecordMeta, protowire.BytesType)
	b = protowire.AppendBytes(b, meta)
	b = protowire.AppendTag(b, fieldRecordData, protowire.BytesType)
	b = protowire.AppendBytes(b, data)

	p := proposed{id: id, fixed: b}
	if isMeta(stream) && isJSON {
		p.metadata = data
	}
	return p
}

// record completes an event with its place and time: the bytes of a ReadResp message.
func (p proposed) record(revision int64, position uint64, created string) []byte {
	system := sizeSystem(keyCreated, created)
	inner := len(p.fixed) + system + sizeUint(fieldRecordRevision, uint64(revision)) +
		sizeUint(fieldRecordPrepare, position) + sizeUint(fieldRecordCommit, position)
	outer := protowire.SizeTag(fieldEventRecord) + protowire.SizeBytes(inner) + sizeUint(fieldEventPosition, position)

	b := make([]byte, 0, protowire.SizeTag(fieldRespEvent)+protowire.SizeBytes(outer))
	b = protowire.AppendTag(b, fieldRespEvent, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(outer))
	b = protowire.AppendTag(b, fieldEventRecord, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(inner))
	b = append(b, p.fixed...)
	b = appendUint(b, fieldRecordRevision, uint64(revision))
	b = appendUint(b, fieldRecordPrepare, position)
	b = appendUint(b, fieldRecordCommit, position)
	b = appendSystem(b, keyCreated, created)
	return appendUint(b, fieldEventPosition, position)
}

// recorded is what the node itself reads of a stored event. Its slices are parts of the record.
type recorded struct {
	id       uuid.UUID
	stream   []byte
	revision int64
	position uint64
	typ      []byte
	created  time.Time
	data     []byte
}

var errRecord = errors.New("stored event is damaged")

// parseRecord reads a stored event.
func parseRecord(b []byte) (recorded, error) {
	var r recorded
	resp, ok := findBytes(b, fieldRespEvent)
	if !ok {
		return r, errRecord
	}
	inner, ok := findBytes(resp, fieldEventRecord)
	if !ok {
		return r, errRecord
	}
	var most, least uint64
	ok = eachField(inner, func(number protowire.Number, v uint64, sub []byte) bool {
		switch number {
		case fieldRecordID:
			structured, found := findBytes(sub, fieldUUIDStructured)
			return found && eachField(structured, func(half protowire.Number, v uint64, _ []byte) bool {
				switch half {
				case fieldUUIDMost:
					most = v
				case fieldUUIDLeast:
					least = v
				}
				return true
			})
		case fieldRecordStream:
			var found bool
			r.stream, found = findBytes(sub, fieldStreamName)
			return found
		case fieldRecordRevision:
			r.revision = int64(v)
		case fieldRecordCommit:
			r.position = v
		case fieldRecordSystem:
			return r.system(sub)
		case fieldRecordData:
			r.data = sub
		}
		return true
	})
	if !ok || r.position == 0 || r.revision < 0 || len(r.typ) == 0 {
		return recorded{}, errRecord
	}
	r.id = uuidFromHalves(most, least)
	return r, nil
}

// system takes over one entry of the system metadata.
func (r *recorded) system(entry []byte) bool {
	key, ok := findBytes(entry, fieldMapKey)
	if !ok {
		return false
	}
	value, ok := findBytes(entry, fieldMapValue)
	if !ok {
		return false
	}
	switch string(key) {
	case keyType:
		r.typ = value
	case keyCreated:
		ticks, ok := parseTicks(value)
		if !ok {
			return false
		}
		r.created = ticks
	}
	return true
}
