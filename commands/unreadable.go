package commands

import (
	"errors"
	"fmt"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/panics"
)

// UnreadableError is an event that cannot be decoded, until it is repaired or a program runs that
// can decode it.
type UnreadableError struct {
	Stream   string
	Revision eventstore.Revision
	Err      error
}

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("event %d of %s cannot be read: %v", e.Revision, e.Stream, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// sound returns nil for an event that was decoded.
func sound(f eventstore.Fact) error {
	if f.Err == nil {
		return nil
	}
	return &UnreadableError{Stream: f.Stream, Revision: f.Revision, Err: f.Err}
}

// Lasting reports whether every further try would fail the same way, because of what is stored or
// of a fault in the program. Unknown errors are not lasting.
func Lasting(err error) bool {
	_, unreadable := errors.AsType[*UnreadableError](err)
	_, blob := errors.AsType[*eventstore.BlobError](err)
	_, panicked := errors.AsType[*panics.Error](err)
	return unreadable || blob || panicked
}
