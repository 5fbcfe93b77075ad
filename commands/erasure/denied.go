package erasure

import (
	"errors"
	"fmt"

	"github.com/annals-project/annals/eventstore"
)

// DeniedError is what the event store denies its user in a round: a count with the error of the first, since there may
// be one for each deletion.
type DeniedError struct {
	Count int
	First error
}

// Error implements error.
func (e *DeniedError) Error() string { return fmt.Sprintf("one of %d: %v", e.Count, e.First) }

// Unwrap returns the first.
func (e *DeniedError) Unwrap() error { return e.First }

// add counts an error if the store denied the call. The zero value has counted none.
func (e *DeniedError) add(err error) bool {
	if !errors.Is(err, eventstore.ErrDenied) {
		return false
	}
	if e.Count++; e.First == nil {
		e.First = err
	}
	return true
}

// join returns the errors of a round, and what was denied.
func (e *DeniedError) join(errs ...error) error {
	if e.Count > 0 {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// Denied returns what the event store denied its user, nil for nothing.
func Denied(err error) *DeniedError {
	if many, is := errors.AsType[*DeniedError](err); is {
		return many
	}
	if one, is := errors.AsType[*eventstore.DeniedError](err); is {
		return &DeniedError{1, one}
	}
	return nil
}
