package node

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/protobuf/proto"

	"github.com/annals-project/annals/eventstore/node/storage"
)

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
