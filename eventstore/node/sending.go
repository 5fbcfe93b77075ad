package node

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/protobuf/proto"
)

// linkType is the type of events that stand for another event; their data is its place, revision@stream.
const linkType = "$>"

// sender sends events in the form that the client asked for. The usual form is the stored one, which is sent as it is.
type sender struct {
	call  streams.Streams_ReadServer
	views *views
	// textIDs writes the ids of events as text, resolve puts the event beside a link to it.
	textIDs, resolve bool
}

func (s *sender) send(e entry) error {
	if s.resolve {
		r, err := parseRecord(e.record)
		if err != nil {
			return fmt.Errorf("event at position %d: %w", e.position, err)
		}
		if string(r.typ) == linkType {
			return s.sendLink(e, r.data)
		}
	}
	if !s.textIDs {
		return s.call.SendMsg(encoded(e.record))
	}
	resp, err := decodeRecord(e.record)
	if err != nil {
		return fmt.Errorf("event at position %d: %w", e.position, err)
	}
	return s.reencoded(resp)
}

func (s *sender) sendAll(events []entry) error {
	for _, e := range events {
		if err := s.send(e); err != nil {
			return err
		}
	}
	return nil
}

// sendLink sends a link with the event that it stands for, or alone where that is gone.
func (s *sender) sendLink(e entry, place []byte) error {
	resp, err := decodeRecord(e.record)
	if err != nil {
		return fmt.Errorf("event at position %d: %w", e.position, err)
	}
	target, err := s.target(place)
	if err != nil {
		return err
	}
	resp.GetEvent().Link, resp.GetEvent().Event = resp.GetEvent().GetEvent(), target
	return s.reencoded(resp)
}

// target finds the event that a link names; nil where readers do not see it.
func (s *sender) target(place []byte) (*streams.ReadResp_ReadEvent_RecordedEvent, error) {
	number, stream, ok := bytes.Cut(place, []byte("@"))
	revision, err := strconv.ParseInt(string(number), 10, 64)
	if !ok || err != nil || revision < 0 {
		return nil, nil //nolint:nilnil // a link to nowhere is shown without its target
	}
	v, err := s.views.acquire()
	if err != nil {
		return nil, err
	}
	record, err := v.event(string(stream), revision)
	if err = errors.Join(err, v.release()); err != nil || record == nil {
		return nil, err
	}
	resp, err := decodeRecord(record)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", place, err)
	}
	return resp.GetEvent().GetEvent(), nil
}

// event returns one event of a stream, nil where readers do not see it.
func (v *view) event(stream string, revision int64) ([]byte, error) {
	state, err := v.state(stream)
	if err != nil || state.deleted() || !state.exists() || revision < state.firstReadable() || revision > state.last {
		return nil, err
	}
	index, found, err := get(v.snapshot, revisionKey(state.id, revision))
	if err != nil || !found {
		return nil, err
	}
	position, err := decodePosition(index)
	if err != nil {
		return nil, err
	}
	record, _, err := get(v.snapshot, eventKey(position))
	return record, err
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
		return nil, errors.Join(errRecord, err)
	}
	return resp, nil
}
