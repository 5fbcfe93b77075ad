package runner

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/projections"
)

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
