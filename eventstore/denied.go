package eventstore

import (
	"errors"
	"fmt"
	"strings"
)

// ErrDenied is a call that the store does not allow its user; nothing was written. It comes with ErrUnavailable, since
// the same call succeeds once the user has the right. A DeniedError names the right.
var ErrDenied = errors.New("the event store denies it its user")

// Right is a right of a user, as a list of rights ("$acl") names it.
type Right string

// The rights that the service needs.
const (
	MayRead          Right = "$r"
	MayWrite         Right = "$w"
	MayDelete        Right = "$d"
	MayReadMetadata  Right = "$mr"
	MayWriteMetadata Right = "$mw"
)

// DeniedError is ErrDenied with the right that the user lacks.
type DeniedError struct {
	Right Right
	// Stream is "$all" for the whole log.
	Stream string
	Err    error
}

// Denied returns the error of a call that needs a right on a stream. A call on the metadata of a stream needs the
// right on the metadata.
func Denied(right Right, name string, err error) error {
	if of, is := strings.CutPrefix(name, "$$"); is {
		name = of
		switch right {
		case MayRead:
			right = MayReadMetadata
		case MayWrite:
			right = MayWriteMetadata
		default:
		}
	}
	return &DeniedError{right, name, err}
}

// Error implements error.
func (e *DeniedError) Error() string {
	return fmt.Sprintf(`the event store denies its user the right "%s" in the $acl of %s: %v`, e.Right, e.Stream, e.Err)
}

// Is makes the error ErrDenied and ErrUnavailable.
func (e *DeniedError) Is(target error) bool { return target == ErrDenied || target == ErrUnavailable }

// Unwrap returns the answer of the store.
func (e *DeniedError) Unwrap() error { return e.Err }
