package operatorapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// EventLog is the event log that a server or a command reads.
type EventLog interface {
	Read(
		ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int,
	) ([]eventstore.Recorded, error)
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
	// Created is the time at which the store wrote the event.
	Created time.Time `json:"created"`
	// Size is that of data and metadata in bytes.
	Size int `json:"size"`
	// Data is the payload if that is JSON. Otherwise Raw is, as base64.
	Data     json.RawMessage `json:"data,omitempty"`
	Raw      []byte          `json:"raw,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// eventOf returns the form for operators of a stored event.
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

// Tail selects events of the log as they are written.
type Tail struct {
	// After is the position after which the tail begins, 0 for the beginning of the log. FromEnd begins
	// after the newest event instead.
	After   uint64
	FromEnd bool
	// Stream is the full name of a stream and Type the prefix of an event type; "" selects all.
	Stream, Type string
}

// Follow passes on the selected events until the context ends, the subscription is dropped or emit
// fails, and returns the reason. opened is called once no event after the beginning can be missed.
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

// StreamRange selects events of one stream.
type StreamRange struct {
	Stream string
	// From is the first stream revision. Nil is that of the first event or, backwards, of the last one.
	From      *int64
	Backwards bool
	// Limit is the most events, 0 for all.
	Limit int
}

// readSize is how many events are read at once.
const readSize = 64

// Walk passes on the selected events. A stream without events has none; a tombstoned stream is
// eventstore.ErrDeleted.
func (s StreamRange) Walk(ctx context.Context, log EventLog, emit func(Event) error) error {
	direction, next, step := eventstore.Forwards, eventstore.Revision(0), eventstore.Revision(1)
	if s.Backwards {
		direction, next, step = eventstore.Backwards, math.MaxInt64, -1
	}
	if s.From != nil {
		next = eventstore.Revision(*s.From)
	}
	for left := s.Limit; s.Limit == 0 || left > 0; {
		page := readSize
		if s.Limit > 0 {
			page = min(page, left)
		}
		events, err := log.Read(ctx, s.Stream, next, direction, page)
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

const (
	pathTail   = "/operator/tail"
	pathEvents = "/operator/events"
)

// EventRoutes returns the routes of the log: GET /operator/tail?after=&stream=&type= and
// GET /operator/events?stream=&from=&backwards=&limit=. Both return one JSON value a line.
func EventRoutes(log EventLog) []Route {
	return []Route{
		{http.MethodGet + " " + pathTail, func(out answers) http.HandlerFunc {
			return serveEvents(out, tailOf, func(r *http.Request, t Tail, l *lines) error {
				return t.Follow(r.Context(), log, l.begin, l.event)
			})
		}},
		{http.MethodGet + " " + pathEvents, func(out answers) http.HandlerFunc {
			return serveEvents(out, rangeOf, func(r *http.Request, s StreamRange, l *lines) error {
				return s.Walk(r.Context(), log, l.event)
			})
		}},
	}
}

// serveEvents serves the events that a query selects.
func serveEvents[S any](
	out answers, parse func(url.Values) (S, error), send func(*http.Request, S, *lines) error,
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		selected, err := parse(r.URL.Query())
		if err != nil {
			out.refuse(w, r, &refusedError{errInvalid, err.Error()})
			return
		}
		l := newLines(w)
		l.to.SetEscapeHTML(false) // payloads are passed on as they are
		err = send(r, selected, l)
		if err != nil && r.Context().Err() == nil {
			err = l.fail(err)
		}
		if err != nil {
			out.notWritten(r, err)
		}
	}
}

func (l *lines) event(e Event) error { return l.write(line{Event: &e}) }

func tailOf(q url.Values) (t Tail, err error) {
	t = Tail{Stream: q.Get("stream"), Type: q.Get("type"), FromEnd: q.Get("after") == "end"}
	if !t.FromEnd {
		if t.After, err = strconv.ParseUint(q.Get("after"), 10, 64); err != nil {
			err = errors.New("after is neither a position nor end")
		}
	}
	return t, err
}

func rangeOf(q url.Values) (StreamRange, error) {
	s := StreamRange{Stream: q.Get("stream"), Backwards: q.Get("backwards") == "true"}
	if s.Stream == "" {
		return s, errors.New("a stream must be named")
	}
	if text := q.Get("from"); text != "" {
		from, err := strconv.ParseInt(text, 10, 64)
		if err != nil || from < 0 {
			return s, errors.New("from is not a revision")
		}
		s.From = &from
	}
	if text := q.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 0 {
			return s, errors.New("limit is not a number of events")
		}
		s.Limit = limit
	}
	return s, nil
}

// Tail passes on the selected events until the context ends, the server stops or emit fails. opened
// is called once no event after the beginning can be missed.
func (c *Client) Tail(ctx context.Context, t Tail, opened func(), emit func(Event) error) error {
	q := url.Values{"after": {strconv.FormatUint(t.After, 10)}, "stream": {t.Stream}, "type": {t.Type}}
	if t.FromEnd {
		q.Set("after", "end")
	}
	if err := c.events(ctx, pathTail, q, opened, emit); err != nil {
		return err
	}
	return errors.New("the server has stopped")
}

// Events passes on the selected events of a stream. A tombstoned stream is eventstore.ErrDeleted.
func (c *Client) Events(ctx context.Context, s StreamRange, emit func(Event) error) error {
	q := url.Values{"stream": {s.Stream}, "backwards": {strconv.FormatBool(s.Backwards)}, "limit": {strconv.Itoa(s.Limit)}}
	if s.From != nil {
		q.Set("from", strconv.FormatInt(*s.From, 10))
	}
	return c.events(ctx, pathEvents, q, func() {}, emit)
}

func (c *Client) events(
	ctx context.Context, path string, query url.Values, opened func(), emit func(Event) error,
) error {
	return c.stream(ctx, http.MethodGet, path+"?"+query.Encode(), opened, func(l line) error {
		if l.Event == nil {
			return nil
		}
		return emit(*l.Event)
	})
}
