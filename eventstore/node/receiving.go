package node

import (
	"bytes"
	"unicode/utf8"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Field numbers of an append in streams.proto.
const (
	fieldAppendEvent = 2

	fieldSentID     = 1
	fieldSentSystem = 2
	fieldSentMeta   = 3
	fieldSentData   = 4
)

// received is one message of an append as it came, not decoded. Its bytes are good until the next one is received into it.
type received struct{ bytes []byte }

// sent is an event as a client sent it. Its slices may be parts of the message.
type sent struct {
	id                      uuid.UUID
	typ, contentType        string
	hasType, hasContentType bool
	meta, data              []byte
}

// event reads the event of a message. What clients usually send is read where it lies: the general way makes a message, a map and
// half a dozen strings of each event, only for all of it to be encoded again.
func (m *received) event() (sent, error) {
	if e, usual := usualEvent(m.bytes); usual {
		return e, nil
	}
	msg := &streams.AppendReq{}
	if err := proto.Unmarshal(m.bytes, msg); err != nil {
		return sent{}, status.Errorf(codes.Internal, "a message of the append cannot be read: %v", err)
	}
	p := msg.GetProposedMessage()
	if p == nil {
		return sent{}, errInvalid("the options of an append come once")
	}
	return sentOf(p)
}

// proposed is the event of a message, encoded, and what it counts towards maxAppend.
func (m *received) proposed(stream string) (proposed, int, error) {
	e, err := m.event()
	if err != nil {
		return proposed{}, 0, err
	}
	return e.proposed(stream)
}

// usualEvent reads an event of the form that clients send; usual is false for anything out of the ordinary, which says nothing about
// whether it is sound.
func usualEvent(b []byte) (e sent, usual bool) {
	var message []byte
	usual = eachField(b, func(number protowire.Number, _ uint64, sub []byte) bool {
		fresh := message == nil
		message = sub
		return fresh && number == fieldAppendEvent && sub != nil
	})
	if !usual || message == nil {
		return sent{}, false
	}
	var seen [fieldSentData + 1]int
	usual = eachField(message, func(number protowire.Number, _ uint64, sub []byte) bool {
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

// readID reads an id in its structured form.
func (e *sent) readID(b []byte) bool {
	var structured []byte
	if !eachField(b, func(number protowire.Number, _ uint64, sub []byte) bool {
		fresh := structured == nil
		structured = sub
		return fresh && number == fieldUUIDStructured && sub != nil
	}) || structured == nil {
		return false
	}
	var halves [fieldUUIDLeast + 1]uint64
	var seen [fieldUUIDLeast + 1]bool
	usual := eachField(structured, func(number protowire.Number, v uint64, sub []byte) bool {
		if number > fieldUUIDLeast || seen[number] || sub != nil {
			return false
		}
		halves[number], seen[number] = v, true
		return true
	})
	e.id = uuidFromHalves(halves[fieldUUIDMost], halves[fieldUUIDLeast])
	return usual
}

// readSystem reads one entry of the system metadata, of which an event has the two that count.
func (e *sent) readSystem(b []byte) bool {
	var key, value []byte
	if !eachField(b, func(number protowire.Number, _ uint64, sub []byte) bool {
		switch number {
		case fieldMapKey:
			key = sub
		case fieldMapValue:
			value = sub
		default:
			return false
		}
		return sub != nil
	}) || key == nil || value == nil || !utf8.Valid(value) {
		return false
	}
	switch string(key) {
	case keyType:
		e.typ, e.hasType = string(value), true
	case keyContentType:
		e.contentType, e.hasContentType = contentTypeRaw, true
		if string(value) == contentTypeJSON {
			e.contentType = contentTypeJSON
		}
	default:
		return false
	}
	return true
}

// sentOf takes an event from a decoded message, of either form of append.
func sentOf(m sentEvent) (sent, error) {
	id, err := idOf(m.GetId())
	if err != nil {
		return sent{}, err
	}
	e := sent{id: id, meta: m.GetCustomMetadata(), data: m.GetData()}
	e.typ, e.hasType = m.GetMetadata()[keyType]
	e.contentType, e.hasContentType = m.GetMetadata()[keyContentType]
	return e, nil
}

// proposed checks an event and encodes it, which copies it; size is what it counts towards maxAppend.
func (e sent) proposed(stream string) (p proposed, size int, err error) {
	switch {
	case !e.hasType:
		return proposed{}, 0, errMissingProperty(keyType)
	case !e.hasContentType:
		return proposed{}, 0, errMissingProperty(keyContentType)
	case e.id == uuid.Nil || e.typ == "":
		return proposed{}, 0, &failed{code: codes.Unknown, message: "an event has an id and a type"}
	}
	p = propose(stream, e.id, e.typ, e.contentType == contentTypeJSON, e.data, e.meta)
	p.metadata = bytes.Clone(p.metadata)
	return p, len(e.data) + len(e.meta) + 2*len(e.typ), nil
}
