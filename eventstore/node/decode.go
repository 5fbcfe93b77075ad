package node

import (
	"unicode/utf8"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
)

// Field numbers of an append in streams.proto.
const (
	fieldAppendEvent = 2

	fieldSentID     = 1
	fieldSentSystem = 2
	fieldSentMeta   = 3
	fieldSentData   = 4
)

// rawMessage is one message of an append, not decoded. Its bytes are valid until the next message
// is received into it.
type rawMessage struct{ bytes []byte }

// sent is an event as a client sent it. Its slices may be parts of the message.
type sent struct {
	id                      uuid.UUID
	typ, contentType        string
	hasType, hasContentType bool
	meta, data              []byte
}

// event decodes the event of a message. The usual form is decoded without generated types, which
// would make a message, a map and several strings of each event only to encode it again.
func (m *rawMessage) event() (sent, error) {
	if e, usual := decodeCommonEvent(m.bytes); usual {
		return e, nil
	}
	msg := &streams.AppendReq{}
	if err := proto.Unmarshal(m.bytes, msg); err != nil {
		return sent{}, status.Errorf(codes.Internal, "a message of the append cannot be read: %v", err)
	}
	p := msg.GetProposedMessage()
	if p == nil {
		return sent{}, errInvalid("an append must have its options once")
	}
	return sentOf(p)
}

// proposed encodes the event of a message. It also returns how many bytes count towards maxAppend.
func (m *rawMessage) proposed(stream string) (storage.Proposed, int, error) {
	e, err := m.event()
	if err != nil {
		return storage.Proposed{}, 0, err
	}
	return e.proposed(stream)
}

// decodeCommonEvent decodes the form that clients send. usual is false for any other form, valid or
// not.
func decodeCommonEvent(b []byte) (e sent, usual bool) {
	var message []byte
	usual = wire.EachField(b, func(number protowire.Number, _ uint64, sub []byte) bool {
		fresh := message == nil
		message = sub
		return fresh && number == fieldAppendEvent && sub != nil
	})
	if !usual || message == nil {
		return sent{}, false
	}
	var seen [fieldSentData + 1]int
	usual = wire.EachField(message, func(number protowire.Number, _ uint64, sub []byte) bool {
		if number > fieldSentData || sub == nil {
			return false
		}
		seen[number]++
		switch number {
		case fieldSentID:
			return e.readID(sub)
		case fieldSentSystem:
			return e.readSystem(sub)
		case fieldSentMeta:
			e.meta = sub
		case fieldSentData:
			e.data = sub
		}
		return true
	})
	once := seen[fieldSentID] == 1 && seen[fieldSentMeta] <= 1 && seen[fieldSentData] <= 1
	return e, usual && once && e.hasType && e.hasContentType && seen[fieldSentSystem] == 2
}

// readID decodes an id in its structured form.
func (e *sent) readID(b []byte) bool {
	var structured []byte
	if !wire.EachField(b, func(number protowire.Number, _ uint64, sub []byte) bool {
		fresh := structured == nil
		structured = sub
		return fresh && number == wire.FieldUUIDStructured && sub != nil
	}) || structured == nil {
		return false
	}
	var halves [wire.FieldUUIDLeast + 1]uint64
	var seen [wire.FieldUUIDLeast + 1]bool
	usual := wire.EachField(structured, func(number protowire.Number, v uint64, sub []byte) bool {
		if number > wire.FieldUUIDLeast || seen[number] || sub != nil {
			return false
		}
		halves[number], seen[number] = v, true
		return true
	})
	e.id = wire.UUIDFromHalves(halves[wire.FieldUUIDMost], halves[wire.FieldUUIDLeast])
	return usual
}

// readSystem decodes one entry of the system metadata: the type or the content type.
func (e *sent) readSystem(b []byte) bool {
	var key, value []byte
	if !wire.EachField(b, func(number protowire.Number, _ uint64, sub []byte) bool {
		switch number {
		case wire.FieldMapKey:
			key = sub
		case wire.FieldMapValue:
			value = sub
		default:
			return false
		}
		return sub != nil
	}) || key == nil || value == nil || !utf8.Valid(value) {
		return false
	}
	switch string(key) {
	case wire.KeyType:
		e.typ, e.hasType = string(value), true
	case wire.KeyContentType:
		e.contentType, e.hasContentType = wire.ContentTypeRaw, true
		if string(value) == wire.ContentTypeJSON {
			e.contentType = wire.ContentTypeJSON
		}
	default:
		return false
	}
	return true
}

// sentOf reads an event from a decoded message, of either form of append.
func sentOf(m protoEvent) (sent, error) {
	id, err := idOf(m.GetId())
	if err != nil {
		return sent{}, err
	}
	e := sent{id: id, meta: m.GetCustomMetadata(), data: m.GetData()}
	e.typ, e.hasType = m.GetMetadata()[wire.KeyType]
	e.contentType, e.hasContentType = m.GetMetadata()[wire.KeyContentType]
	return e, nil
}

// proposed checks an event and encodes a copy of it. size is how many bytes count towards
// maxAppend.
func (e sent) proposed(stream string) (p storage.Proposed, size int, err error) {
	switch {
	case !e.hasType:
		return storage.Proposed{}, 0, errMissingProperty(wire.KeyType)
	case !e.hasContentType:
		return storage.Proposed{}, 0, errMissingProperty(wire.KeyContentType)
	case e.id == uuid.Nil || e.typ == "":
		return storage.Proposed{}, 0, &callError{code: codes.Unknown, message: "an event has an id and a type"}
	}
	p = storage.Propose(stream, e.id, e.typ, e.contentType == wire.ContentTypeJSON, e.data, e.meta)
	return p, len(e.data) + len(e.meta) + 2*len(e.typ), nil
}
