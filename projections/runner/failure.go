package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/projections"
)

// causedByEvent reports whether an error of a page of one event is caused by that event: what the projector made of
// it, or a value that the database refuses. Any other failure is repeated until its cause is gone; the event cannot
// be set aside for it.
func causedByEvent(err error) bool {
	_, ofApply := errors.AsType[*causeError](err)
	return ofApply && !transient(err)
}

// transient reports whether an error has a cause outside the data, so that the same call may succeed later.
func transient(err error) bool {
	if err == nil {
		return false
	}
	for _, known := range []error{
		projections.ErrTransient, context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, io.EOF,
		io.ErrUnexpectedEOF, net.ErrClosed, eventstore.ErrUnavailable, eventstore.ErrUnknown, errTooLong, pgx.ErrTxClosed,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return !pg.CausedByData(refused)
	}
	if _, network := errors.AsType[net.Error](err); network {
		return true
	}
	if _, unconnected := errors.AsType[*pgconn.ConnectError](err); unconnected {
		return true
	}
	if _, system := errors.AsType[syscall.Errno](err); system {
		return true
	}
	if _, file := errors.AsType[*fs.PathError](err); file {
		return true
	}
	return pgconn.SafeToRetry(err)
}

// causeError is an error of Apply as the log, the checkpoint and /readyz may show it: its text is the
// kind of error. The text of the error itself may quote the event, which is customer text.
type causeError struct {
	kind string
	err  error
}

func (e *causeError) Error() string { return e.kind }
func (e *causeError) Unwrap() error { return e.err }

// causeOf returns an error of an event without its text, unless that is known to hold no customer text.
func causeOf(err error) error {
	if err == nil {
		return nil
	}
	if _, done := errors.AsType[*causeError](err); done {
		return err
	}
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		return &causeError{kindOfRefusal(refused), err}
	}
	if panicked, is := errors.AsType[*panics.Error](err); is {
		return &causeError{kindOfPanic(panicked), err}
	}
	if unknown, is := errors.AsType[*eventstore.UnknownEventError](err); is {
		return &causeError{unknown.Error(), err}
	}
	if panicked, is := errors.AsType[*eventstore.DecoderPanicError](err); is {
		return &causeError{panicked.Error(), err}
	}
	if refused, is := errors.AsType[*projections.EventError](err); is && isPlain(refused.Err) {
		return &causeError{refused.Error(), err}
	}
	if transient(err) {
		return err // it is not caused by the event
	}
	return &causeError{fmt.Sprintf("error of type %T", innermost(err)), err}
}

// kindOfRefusal names what a database refused, without the values that its message quotes.
func kindOfRefusal(e *pgconn.PgError) string {
	kind := "the database returned error " + e.Code
	for _, part := range []struct{ what, name string }{
		{"table", e.TableName}, {"column", e.ColumnName}, {"type", e.DataTypeName}, {"constraint", e.ConstraintName},
	} {
		if part.name != "" {
			kind += ", " + part.what + " " + part.name
		}
	}
	if cause := pg.Cause(e); cause != "" {
		kind += " (" + cause + ")"
	}
	return kind
}

// kindOfPanic is the text of a panic of the Go runtime, such as of an index out of range, and the type of
// the value of another one.
func kindOfPanic(e *panics.Error) string {
	if v, is := e.Value.(runtime.Error); is {
		return "panic: " + v.Error()
	}
	return fmt.Sprintf("panic with a value of type %T", e.Value)
}

// isPlain reports whether an error and all that it wraps were made by errors.New and fmt.Errorf.
func isPlain(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		kind := reflect.TypeOf(err).String()
		if kind != "*errors.errorString" && kind != "*fmt.wrapError" {
			return false
		}
	}
	return true
}

// innermost returns the error that others wrap. Of several errors it is the first.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if joined, is := err.(interface{ Unwrap() []error }); is && len(joined.Unwrap()) > 0 {
			next = joined.Unwrap()[0]
		}
		if next == nil {
			return err
		}
		err = next
	}
}

// repeatLimit is how long a projector may repeat one page before it counts as stopped.
const repeatLimit = 2 * time.Minute

// Repeat is a page that a projector retries, or a lease that it cannot take. It ends by itself once
// the page succeeds.
type Repeat struct {
	Projection string
	// After and Next are the positions before the page and of its last event, both 0 for a lease.
	After, Next eventstore.Position
	// Since is when the first try began, Tries how many have failed.
	Since time.Time
	Tries int
	Err   error
	// OfEvent is true if the event at Next is the cause: it takes longer than the longest limit.
	OfEvent bool
}

// holds reports whether it holds up the event at a position of a projection that has applied everything up to
// applied.
func (r *Repeat) holds(at, applied eventstore.Position) bool {
	if r.Next == 0 {
		return at > applied
	}
	return r.After < at && at <= r.Next
}

func (r *Repeat) Error() string {
	since := r.Since.UTC().Format(time.RFC3339)
	if r.Next == 0 {
		return fmt.Sprintf("projection %s cannot begin since %s (%d tries): %s", r.Projection, since, r.Tries, brief(r.Err))
	}
	return fmt.Sprintf("projection %s repeats the page after %d up to %d since %s (%d tries): %s",
		r.Projection, r.After, r.Next, since, r.Tries, brief(r.Err))
}

func (r *Repeat) Unwrap() error { return r.Err }

// same reports whether both are about the same page.
func (r *Repeat) same(o *Repeat) bool {
	return r != nil && o != nil && r.After == o.After && r.Next == o.Next && r.Since.Equal(o.Since)
}

// maxBriefBytes bounds the text of a cause.
const maxBriefBytes = 200

// brief returns the cause of a failure in a few words, without values that a database error may
// quote.
func brief(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return kindOfRefusal(refused)
	}
	text := err.Error()
	if len(text) <= maxBriefBytes {
		return text
	}
	cut := maxBriefBytes
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// recordFailure records that a page, or taking the lease, failed.
func (r *runner) recordFailure(after, next eventstore.Position, began time.Time, err error) {
	r.progress.change(func(p *progress) {
		now := &Repeat{Projection: r.projector.Name(), After: after, Next: next, Since: began, Tries: 1, Err: err}
		now.OfEvent = errors.Is(err, errTooLong) && r.bounds.isLongest(next)
		if before := p.repeat; before != nil && before.After == after {
			now.Since, now.Tries = before.Since, before.Tries+1
		}
		p.lastErr, p.repeat = err, now
	})
}

// overdue is a repeat that counts as a stop, nil if there is none.
func (s snapshot) overdue(limit time.Duration) *Repeat {
	if s.repeat == nil || time.Since(s.repeat.Since) < limit {
		return nil
	}
	return s.repeat
}

// Stop is why a projector stopped, with the event that it could not apply, if any.
type Stop struct {
	Projection string
	// Position, Stream, Type and EventID are of the event, zero for another reason.
	Position eventstore.Position
	Stream   string
	Type     string
	EventID  uuid.UUID
	// Err is the kind of the error; it holds no text of the event.
	Err error
}

func (s *Stop) Error() string {
	if s.Stream == "" {
		return "projection " + s.Projection + " stopped: " + s.Err.Error()
	}
	return "projection " + s.Projection + " stopped at " + s.Type + " of " + s.Stream + ": " + s.Err.Error()
}

func (s *Stop) Unwrap() error { return s.Err }

// storedStop is a Stop or a Repeat in the checkpoint, for other processes.
type storedStop struct {
	Position eventstore.Position `json:"position"`
	Stream   string              `json:"stream"`
	Type     string              `json:"type"`
	EventID  uuid.UUID           `json:"eventId,omitzero"`
	Error    string              `json:"error"`
	// Of a Repeat, whose Next is Position.
	After   eventstore.Position `json:"after,omitempty"`
	Since   time.Time           `json:"since,omitzero"`
	Tries   int                 `json:"tries,omitempty"`
	OfEvent bool                `json:"ofEvent,omitempty"`
}

// encodeReason encodes why a projection does not move, nil for no reason.
func encodeReason(stop *Stop, repeat *Repeat) ([]byte, error) {
	var stored storedStop
	switch {
	case stop != nil:
		stored = storedStop{
			Position: stop.Position, Stream: stop.Stream, Type: stop.Type, EventID: stop.EventID, Error: stop.Err.Error(),
		}
	case repeat != nil:
		stored = storedStop{
			Position: repeat.Next, Error: brief(repeat.Err), After: repeat.After, Since: repeat.Since, Tries: repeat.Tries,
			OfEvent: repeat.OfEvent,
		}
	default:
		return nil, nil
	}
	// jsonb cannot hold U+0000.
	stored.Error = strings.ReplaceAll(stored.Error, "\x00", "\uFFFD")
	encoded, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("encode reason of a stop: %w", err)
	}
	return encoded, nil
}

func decodeReason(projection string, encoded []byte) (*Stop, *Repeat, error) {
	var stored storedStop
	if err := json.Unmarshal(encoded, &stored); err != nil {
		return nil, nil, fmt.Errorf("decode why %s stopped: %w", projection, err)
	}
	cause := errors.New(stored.Error)
	if stored.Tries > 0 {
		return nil, &Repeat{
			Projection: projection, After: stored.After, Next: stored.Position,
			Since: stored.Since, Tries: stored.Tries, Err: cause, OfEvent: stored.OfEvent,
		}, nil
	}
	return &Stop{
		Projection: projection, Position: stored.Position, Stream: stored.Stream, Type: stored.Type,
		EventID: stored.EventID, Err: cause,
	}, nil, nil
}
