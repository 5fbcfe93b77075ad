// Package inspect shows stored events as they are to the person who runs the service: those of one stream, or those of
// the whole log as they are written. It decodes nothing, so it shows also what this program does not know.
package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
)

// readSize is how many events are read at once.
const readSize = 64

// Event is a stored event.
type Event struct {
	Position uint64    `json:"position"`
	Stream   string    `json:"stream"`
	Revision int64     `json:"revision"`
	ID       uuid.UUID `json:"id"`
	Type     string    `json:"type"`
	// Created is the time at which the store wrote the event.
	Created time.Time `json:"created"`
	// Size is that of data and metadata in bytes.
	Size int `json:"size"`
	// Data is the payload if that is JSON. Otherwise Raw is, as base64.
	Data     json.RawMessage `json:"data,omitempty"`
	Raw      []byte          `json:"raw,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

func eventOf(r eventstore.Recorded) Event {
	e := Event{
		Position: uint64(r.Position), Stream: r.Stream, Revision: int64(r.Revision), ID: r.ID, Type: r.Type,
		Created: r.Created.UTC(), Size: len(r.Data) + len(r.Meta), Metadata: compact(r.Meta),
	}
	if e.Data = compact(r.Data); e.Data == nil {
		e.Raw = r.Data
	}
	return e
}

// compact puts JSON on one line. It returns nil for other data.
func compact(data []byte) json.RawMessage {
	var b bytes.Buffer
	if len(data) == 0 || json.Compact(&b, data) != nil {
		return nil
	}
	return b.Bytes()
}

// Log shows the events of a store. It holds at most 64 of them at once.
type Log struct {
	Store interface {
		Read(
			ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int,
		) ([]eventstore.Recorded, error)
		Head(ctx context.Context) (eventstore.Position, error)
		Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error)
	}
}

// Tail selects events of the log as they are written.
type Tail struct {
	// After is the position after which the tail begins, 0 for the beginning of the log. FromEnd begins after the newest
	// event instead.
	After   uint64 `json:"after,omitempty"`
	FromEnd bool   `json:"fromEnd,omitempty"`
	// Stream is the full name of a stream and Type the prefix of an event type; "" selects all.
	Stream string `json:"stream,omitempty"`
	Type   string `json:"type,omitempty"`
}

// Tail passes on the selected events until the context ends, the subscription is dropped or emit fails, and returns the
// reason. opened is called once no event after the beginning can be missed.
func (l Log) Tail(ctx context.Context, t Tail, opened func(), emit func(Event) error) error {
	after := eventstore.Position(t.After)
	if t.FromEnd {
		var err error
		if after, err = l.Store.Head(ctx); err != nil {
			return err
		}
	}
	sub, err := l.Store.Subscribe(ctx, after)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }() // the subscription has ended either way
	opened()
	for {
		r, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if t.Stream != "" && r.Stream != t.Stream || !strings.HasPrefix(r.Type, t.Type) {
			continue
		}
		if err := emit(eventOf(r)); err != nil {
			return err
		}
	}
}

// Range selects events of one stream.
type Range struct {
	Stream string `json:"stream"`
	// From is the first stream revision. Nil is that of the first event or, backwards, of the last one.
	From      *int64 `json:"from,omitempty"`
	Backwards bool   `json:"backwards,omitempty"`
	// Limit is the most events, 0 for all.
	Limit int `json:"limit,omitempty"`
}

// Events passes on the selected events. A stream without events has none; a tombstoned stream is
// eventstore.ErrDeleted. The fault is invalid-request.
func (l Log) Events(ctx context.Context, in Range, emit func(Event) error) error {
	if in.Stream == "" || in.Limit < 0 || in.From != nil && *in.From < 0 {
		return fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"a stream must be named, and its first revision and the number of events are not below 0")
	}
	direction, next, step := eventstore.Forwards, eventstore.Revision(0), eventstore.Revision(1)
	if in.Backwards {
		direction, next, step = eventstore.Backwards, math.MaxInt64, -1
	}
	if in.From != nil {
		next = eventstore.Revision(*in.From)
	}
	for left := in.Limit; in.Limit == 0 || left > 0; {
		page := readSize
		if in.Limit > 0 {
			page = min(page, left)
		}
		events, err := l.Store.Read(ctx, in.Stream, next, direction, page)
		if err != nil {
			return err
		}
		for _, r := range events {
			if err := emit(eventOf(r)); err != nil {
				return err
			}
			next = r.Revision + step
		}
		if left -= len(events); len(events) == 0 || next < 0 {
			return nil
		}
	}
	return nil
}
