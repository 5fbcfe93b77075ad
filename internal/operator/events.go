package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// EventLog is what is asked of the log, by the service that runs on it or by a command that reaches it itself.
type EventLog interface {
	Read(ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int) ([]eventstore.Recorded, error)
	Head(ctx context.Context) (eventstore.Position, error)
	Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error)
}

// Event is a stored event as operators see it.
type Event struct {
	Position uint64    `json:"position"`
	Stream   string    `json:"stream"`
	Revision int64     `json:"revision"`
	ID       uuid.UUID `json:"id"`
	Type     string    `json:"type"`
	// Created is when the store wrote it.
	Created time.Time `json:"created"`
	// Size is the bytes of data and metadata.
	Size int `json:"size"`
	// Data is the payload where that is JSON; otherwise it is in Raw, as base64.
	Data     json.RawMessage `json:"data,omitempty"`
	Raw      []byte          `json:"raw,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// EventOf is a stored event in the form for operators.
func EventOf(r eventstore.Recorded) Event {
	e := Event{
		Position: uint64(r.Position), Stream: r.Stream, Revision: int64(r.Revision), ID: r.ID, Type: r.Type,
		Created: r.Created.UTC(), Size: len(r.Data) + len(r.Meta), Metadata: line(r.Meta),
	}
	if e.Data = line(r.Data); e.Data == nil {
		e.Raw = r.Data
	}
	return e
}

// line puts JSON on one line; nil where it is none.
func line(data []byte) json.RawMessage {
	var b bytes.Buffer
	if len(data) == 0 || json.Compact(&b, data) != nil {
		return nil
	}
	return b.Bytes()
}

// Tail says which events of the log are wanted as they come.
type Tail struct {
	// After is the position behind which the tail begins, 0 for the beginning of the log; FromEnd begins behind its newest event instead.
	After   uint64
	FromEnd bool
	// Stream is a stream's whole name and Type what an event type begins with; empty asks for all.
	Stream, Type string
}

// Follow hands over the wanted events until the context ends, the subscription is dropped or emit fails; the error says why.
// opened is called once the events behind the beginning of the tail cannot be missed any more.
func (t Tail) Follow(ctx context.Context, log EventLog, opened func(), emit func(Event) error) error {
	after := eventstore.Position(t.After)
	if t.FromEnd {
		var err error
		if after, err = log.Head(ctx); err != nil {
			return err
		}
	}
	sub, err := log.Subscribe(ctx, after)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }() // it is over either way
	opened()
	for {
		r, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if t.Stream != "" && r.Stream != t.Stream || !strings.HasPrefix(r.Type, t.Type) {
			continue
		}
		if err := emit(EventOf(r)); err != nil {
			return err
		}
	}
}

// Stretch says which events of one stream are wanted.
type Stretch struct {
	Stream string
	// From is the first revision, inclusive; nil begins at the first event or, backwards, at the last one.
	From      *int64
	Backwards bool
	// Limit is the most events, 0 for all there are.
	Limit int
}

// stretchPage is how many events are read at once.
const stretchPage = 64

// Walk hands over the wanted events. A stream without events has none; a deleted one is eventstore.ErrDeleted.
func (s Stretch) Walk(ctx context.Context, log EventLog, emit func(Event) error) error {
	direction, next, step := eventstore.Forwards, eventstore.Revision(0), eventstore.Revision(1)
	if s.Backwards {
		direction, next, step = eventstore.Backwards, math.MaxInt64, -1
	}
	if s.From != nil {
		next = eventstore.Revision(*s.From)
	}
	for left := s.Limit; s.Limit == 0 || left > 0; {
		page := stretchPage
		if s.Limit > 0 {
			page = min(page, left)
		}
		events, err := log.Read(ctx, s.Stream, next, direction, page)
		if err != nil {
			return err
		}
		for _, r := range events {
			if err := emit(EventOf(r)); err != nil {
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
