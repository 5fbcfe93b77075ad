package node

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
)

// encodedMessage is a message that is encoded already. Its bytes must never change.
type encodedMessage []byte

// codec sends encoded messages and returns received ones without decoding them. It leaves all other
// messages to the protobuf codec.
type codec struct {
	encoding.CodecV2
}

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal returns the bytes of a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(encodedMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal decodes a message, or takes it as it is.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*sizedMessage); ok {
		if m.tooLong = data.Len() > maxMessage; m.tooLong {
			return nil
		}
		return c.Unmarshal(data, m.message)
	}
	if r, ok := v.(*rawMessage); ok {
		r.bytes = slices.Grow(r.bytes[:0], data.Len())[:data.Len()]
		data.CopyTo(r.bytes)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// maxReceived is up to which length a message over maxMessage is received, so that its refusal has the words that
// clients know. grpc ends the call of a longer one with words of its own.
const maxReceived = 2 * maxMessage

// sizedMessage is a message that is not decoded if it is longer than maxMessage.
type sizedMessage struct {
	message any
	tooLong bool
}

// sizedStream refuses messages over maxMessage.
type sizedStream struct {
	grpc.ServerStream
	next sizedMessage
}

// checkSizes is an interceptor: it refuses messages over maxMessage.
func checkSizes(server any, call grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(server, &sizedStream{ServerStream: call})
}

// RecvMsg implements grpc.ServerStream.
func (s *sizedStream) RecvMsg(message any) error {
	s.next = sizedMessage{message: message}
	if err := s.ServerStream.RecvMsg(&s.next); err != nil {
		return err
	}
	if s.next.tooLong {
		return errLongMessage()
	}
	return nil
}

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

// linkType is the type of events that link to another event. Their data is its place,
// revision@stream.
const linkType = "$>"

// sender sends events in the form that the client requested. The usual form is the stored one,
// which is sent unchanged.
type sender struct {
	call   streams.Streams_ReadServer
	engine *storage.Engine
	// textIDs writes the ids of events as text. resolve adds the target to a link.
	textIDs, resolve bool
}

func (s *sender) send(e storage.Entry) error {
	if s.resolve {
		r, err := storage.ParseRecord(e.Record)
		if err != nil {
			return fmt.Errorf("event at position %d: %w", e.Position, err)
		}
		if string(r.Type) == linkType {
			return s.sendLink(e, r.Data)
		}
	}
	if !s.textIDs {
		return s.call.SendMsg(encodedMessage(e.Record))
	}
	resp, err := decodeRecord(e.Record)
	if err != nil {
		return fmt.Errorf("event at position %d: %w", e.Position, err)
	}
	return s.reencoded(resp)
}

func (s *sender) sendAll(events []storage.Entry) error {
	for _, e := range events {
		if err := s.send(e); err != nil {
			return err
		}
	}
	return nil
}

// sendLink sends a link with its target, or alone if the target is removed.
func (s *sender) sendLink(e storage.Entry, link []byte) error {
	resp, err := decodeRecord(e.Record)
	if err != nil {
		return fmt.Errorf("event at position %d: %w", e.Position, err)
	}
	target, err := s.target(link)
	if err != nil {
		return err
	}
	resp.GetEvent().Link, resp.GetEvent().Event = resp.GetEvent().GetEvent(), target
	return s.reencoded(resp)
}

// target returns the event that a link names, nil if readers do not see it.
func (s *sender) target(link []byte) (*streams.ReadResp_ReadEvent_RecordedEvent, error) {
	number, stream, ok := bytes.Cut(link, []byte("@"))
	revision, err := strconv.ParseInt(string(number), 10, 64)
	if !ok || err != nil || revision < 0 {
		return nil, nil //nolint:nilnil // a link to nowhere is shown without its target
	}
	record, err := s.engine.Event(string(stream), revision)
	if err != nil || record == nil {
		return nil, err
	}
	resp, err := decodeRecord(record)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", link, err)
	}
	return resp.GetEvent().GetEvent(), nil
}

// reencoded sends a message that is not in the stored form.
func (s *sender) reencoded(resp *streams.ReadResp) error {
	if s.textIDs {
		for _, e := range []*streams.ReadResp_ReadEvent_RecordedEvent{resp.GetEvent().GetEvent(), resp.GetEvent().GetLink()} {
			if e == nil {
				continue
			}
			id, err := idOf(e.GetId())
			if err != nil {
				return err
			}
			e.Id = &shared.UUID{Value: &shared.UUID_String_{String_: id.String()}}
		}
	}
	return s.call.Send(resp)
}

func decodeRecord(record []byte) (*streams.ReadResp, error) {
	resp := &streams.ReadResp{}
	if err := proto.Unmarshal(record, resp); err != nil || resp.GetEvent().GetEvent() == nil {
		return nil, errors.Join(storage.ErrDamagedRecord, err)
	}
	return resp, nil
}
