package operator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/annals-project/annals/eventstore"
)

const codeDeleted = "deleted"

// EventRoutes serves the log to operators: GET /operator/tail?after=&stream=&type= and
// GET /operator/events?stream=&from=&backwards=&limit=. Both answer one JSON value a line, {"event": …}, and
// {"failure": …} last where the answer ends early.
func EventRoutes(log EventLog) Routes {
	return func(mux *http.ServeMux, out answers) {
		h := &eventHandler{log, out}
		mux.HandleFunc("GET /operator/tail", h.tail)
		mux.HandleFunc("GET /operator/events", h.events)
	}
}

type eventHandler struct {
	store EventLog
	answers
}

// eventLine is one line of an answer.
type eventLine struct {
	Event   *Event   `json:"event,omitempty"`
	Failure *refusal `json:"failure,omitempty"`
}

func (h *eventHandler) tail(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	t := Tail{Stream: q.Get("stream"), Type: q.Get("type"), FromEnd: q.Get("after") == "end"}
	if !t.FromEnd {
		var err error
		if t.After, err = strconv.ParseUint(q.Get("after"), 10, 64); err != nil {
			h.write(w, r, http.StatusBadRequest, refusal{codeInvalid, "after is neither a position nor end"})
			return
		}
	}
	l := newLines(w)
	h.end(l, r, t.Follow(r.Context(), h.store, l.begin, l.event))
}

func (h *eventHandler) events(w http.ResponseWriter, r *http.Request) {
	s, err := stretchOf(r.URL.Query())
	if err != nil {
		h.write(w, r, http.StatusBadRequest, refusal{codeInvalid, err.Error()})
		return
	}
	l := newLines(w)
	h.end(l, r, s.Walk(r.Context(), h.store, l.event))
}

func stretchOf(q url.Values) (Stretch, error) {
	s := Stretch{Stream: q.Get("stream"), Backwards: q.Get("backwards") == "true"}
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

// end says in a last line why an answer ends early.
func (h *eventHandler) end(l *lines, r *http.Request, err error) {
	if err != nil && r.Context().Err() == nil {
		failure := &refusal{codeFailed, err.Error()}
		if errors.Is(err, eventstore.ErrDeleted) {
			failure.Code = codeDeleted
		}
		err = l.encode(eventLine{Failure: failure})
	}
	if err != nil {
		h.log.DebugContext(r.Context(), "operator answer not written", "path", r.URL.Path, "err", err)
	}
}

// lines writes an answer line by line. Each is sent at once: who follows the log sees an event when it is written.
type lines struct {
	to  *json.Encoder
	out *http.ResponseController
}

func newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &lines{enc, http.NewResponseController(w)}
}

// begin sends the header, so that the caller knows that it is heard.
func (l *lines) begin() { _ = l.out.Flush() } // where the caller is gone, the next line says so

func (l *lines) event(e Event) error { return l.encode(eventLine{Event: &e}) }

func (l *lines) encode(v eventLine) error {
	if err := l.to.Encode(v); err != nil {
		return err
	}
	return l.out.Flush()
}

// Tail hands over the wanted events until the context ends, the server stops or emit fails. opened is called once no event
// behind the beginning can be missed any more.
func (c *Client) Tail(ctx context.Context, t Tail, opened func(), emit func(Event) error) error {
	q := url.Values{"after": {strconv.FormatUint(t.After, 10)}, "stream": {t.Stream}, "type": {t.Type}}
	if t.FromEnd {
		q.Set("after", "end")
	}
	if err := c.lines(ctx, "/operator/tail?"+q.Encode(), opened, emit); err != nil {
		return err
	}
	return errors.New("the server has stopped")
}

// Events hands over the wanted events of a stream; a deleted one is eventstore.ErrDeleted.
func (c *Client) Events(ctx context.Context, s Stretch, emit func(Event) error) error {
	q := url.Values{"stream": {s.Stream}, "backwards": {strconv.FormatBool(s.Backwards)}, "limit": {strconv.Itoa(s.Limit)}}
	if s.From != nil {
		q.Set("from", strconv.FormatInt(*s.From, 10))
	}
	return c.lines(ctx, "/operator/events?"+q.Encode(), func() {}, emit)
}

// lines hands over the events of an answer, which may go on for ever.
func (c *Client) lines(ctx context.Context, path string, opened func(), emit func(Event) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://annals"+path, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	patient := &http.Client{Transport: c.http.Transport}
	res, err := patient.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	dec := json.NewDecoder(bufio.NewReader(res.Body))
	if res.StatusCode != http.StatusOK {
		var r refusal
		if err := dec.Decode(&r); err != nil {
			return fmt.Errorf("the server answered %d", res.StatusCode)
		}
		return fmt.Errorf("the server answered %d: %s", res.StatusCode, r.Message)
	}
	opened()
	for {
		var l eventLine
		err := dec.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("the answer of the server broke off: %w", err)
		case l.Failure != nil && l.Failure.Code == codeDeleted:
			return eventstore.ErrDeleted
		case l.Failure != nil:
			return errors.New(l.Failure.Message)
		case l.Event != nil:
			if err := emit(*l.Event); err != nil {
				return err
			}
		}
	}
}
