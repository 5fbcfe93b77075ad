// Package eventstore is the port to the log: what Annals needs of an event store, and the codec of
// its events.
//
// There is no "any" revision in this port: every append names the revision that it was decided on.
package eventstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/event"
)

// Revision numbers the events of one stream from 0.
type Revision int64

// NoStream is the revision of a stream without events.
const NoStream Revision = -1

// EndOfStream is where a backwards read of a whole stream begins.
const EndOfStream Revision = math.MaxInt64

// Position orders all events of the log. Positions rise with gaps. No event has position 0, which
// means "before the first".
type Position uint64

// MaxAppend is the most bytes of data, metadata and types that one append of ours may carry; a
// server refuses 1 MiB by default.
const MaxAppend = 768 << 10

// MaxPage is about how many bytes one read of the whole log returns at most.
const MaxPage = 8 << 20

// Proposed is an event to append, already encoded.
type Proposed struct {
	ID   uuid.UUID
	Type string
	// Data is JSON, unless Type is blob.ChunkType.
	Data []byte
	Meta []byte
}

// Size is what the event counts towards MaxAppend.
func (p Proposed) Size() int { return len(p.Data) + len(p.Meta) + 2*len(p.Type) }

// Recorded is a stored event. Data and Meta must not be changed: readers share them.
type Recorded struct {
	Stream   string
	Revision Revision
	Position Position
	ID       uuid.UUID
	Type     string
	Data     []byte
	Meta     []byte
	// Created is the store's own clock, for operators; decisions and rows use the times within events.
	Created time.Time
}

// System reports whether the event is the store's own: the end or the metadata of a stream, or a
// link.
func (r Recorded) System() bool {
	return strings.HasPrefix(r.Type, "$") || strings.HasPrefix(r.Stream, "$")
}

// SystemStream replaces the stream name in the decoded form of every system event. It has no
// category: a tombstone is stored in the stream that it ends, but is not an event of the stream's
// category.
const SystemStream = "$system"

// TombstoneType is the type of the event that ends a stream permanently.
const TombstoneType = "$streamDeleted"

// MetadataType is the type of the events of a stream "$$name". The last of them records up to where
// the stream "name" is truncated.
const MetadataType = "$metadata"

// Tombstoned is the decoded event that a stream was tombstoned. It is the store's own: Annals never
// appends it.
type Tombstoned struct{ Stream string }

func (Tombstoned) EventType() string { return TombstoneType }

// Kept returns the record of the event with its place in the log. The organization is that of its
// stream, zero for a stream that belongs to none.
func (r Recorded) Kept(organization uuid.UUID) (audit.Kept, error) {
	record, err := audit.Event{
		Organization: organization, ID: r.ID, Stream: r.Stream, Revision: int64(r.Revision), Type: r.Type,
		Meta: r.Meta, Data: r.Data,
	}.Record()
	if err != nil {
		return audit.Kept{}, fmt.Errorf("record of event %d of %s: %w", r.Revision, r.Stream, err)
	}
	return audit.Kept{EventID: r.ID, Position: uint64(r.Position), Record: record}, nil
}

// Size is about how many bytes the event takes.
func (r Recorded) Size() int { return len(r.Data) + len(r.Meta) + len(r.Stream) + 2*len(r.Type) }

// Appended is the revision and the position of the last event of an append.
type Appended struct {
	Revision Revision
	Position Position
}

// Direction is the order of a read.
type Direction int

// The two directions.
const (
	Forwards Direction = iota
	Backwards
)

// Store is an event store. Every call ends with its context; an implementation is safe for
// concurrent use.
type Store interface {
	// Append stores the events, all or none, at the end of a stream whose last revision is expected.
	//
	// Another last revision is ErrConflict, unless the same events are stored after expected already:
	// then the append happened before, and its outcome is returned again. A tombstoned stream is
	// ErrDeleted. An append without a definite answer (a lost connection, a deadline) is ErrUnknown:
	// it may or may not have happened, and the same call may be repeated.
	Append(ctx context.Context, stream string, expected Revision, events []Proposed) (Appended, error)

	// Read reads at most limit events of a stream from a revision (inclusive) on. Backwards from
	// EndOfStream begins at the last event. A stream without events reads as none; a tombstoned
	// stream is ErrDeleted.
	Read(ctx context.Context, stream string, from Revision, direction Direction, limit int) ([]Recorded, error)

	// ReadLast reads the last event of a stream; ok is false if there is none. A tombstoned
	// stream is ErrDeleted.
	ReadLast(ctx context.Context, stream string) (last Recorded, ok bool, err error)

	// ReadAll reads at most limit events of the whole log after a position (exclusive) in order,
	// system events too. The position is 0 or that of an event. ReadAll returns fewer events if more
	// would exceed MaxPage: only an empty result means the end of the log.
	ReadAll(ctx context.Context, after Position, limit int) ([]Recorded, error)

	// ReadAt reads the event at a position; ok is false if it was removed, or if the log ends before it. A position at
	// which no event was ever stored may be ErrNoEvent.
	ReadAt(ctx context.Context, at Position) (r Recorded, ok bool, err error)

	// Head is the position of the newest event of the log, 0 for an empty log. An event that was
	// acknowledged before the call is not above it, and a reader of the whole log reaches it.
	Head(ctx context.Context) (Position, error)

	// Subscribe follows the whole log after a position as ReadAll reads it, unfiltered, until the
	// context ends or the subscription is closed or dropped. It does not resubscribe by itself.
	Subscribe(ctx context.Context, after Position) (Subscription, error)

	// Delete ends a stream so that it can be written again later: after its last revision or, if the
	// caller no longer knows that, after NoStream. Delete and Tombstone fail with ErrConflict and
	// ErrUnknown as Append does.
	Delete(ctx context.Context, stream string, expected Revision) (Position, error)

	// Tombstone ends a stream permanently, also one that never had an event (at NoStream). A
	// tombstoned stream is ErrDeleted. The store removes its events from the log at some later time,
	// except the tombstone.
	Tombstone(ctx context.Context, stream string, expected Revision) (Position, error)

	// Truncate cuts off the events of a stream before a revision. A revision above the last one is
	// ErrConflict. The events can no longer be read, and the store removes them from the log as those
	// of an ended stream. The stream continues. A revision lower than an earlier one changes nothing.
	// Truncate fails with ErrUnknown as Append does, and may be repeated after any error.
	Truncate(ctx context.Context, stream string, before Revision) error

	// Restore removes what hides events of a stream from its metadata: a truncation, an age and a count. So its last
	// event can be read again, which a scavenge keeps. hidden is false if nothing hid events.
	Restore(ctx context.Context, stream string) (hidden bool, err error)

	// Close releases the connections. It is called once, after every other call has returned.
	Close() error
}

// Subscription delivers events in order.
type Subscription interface {
	// Next waits for the next event. After an error the subscription is over.
	Next(ctx context.Context) (Recorded, error)
	Close() error
}

// The errors that callers distinguish, with errors.Is. Everything else is a failure of the store.
var (
	ErrConflict = errors.New("stream is at another revision")
	ErrDeleted  = errors.New("stream was deleted")
	ErrUnknown  = errors.New("outcome of the append is unknown")
	ErrTooLarge = errors.New("append is larger than the store takes")
	// ErrNoEvent proves that the log never had an event at a position.
	ErrNoEvent = errors.New("no event was ever stored at this position")
	// ErrUnavailable is a store that cannot be reached or is not ready; a read may be repeated.
	ErrUnavailable = errors.New("event store is unavailable")
	// ErrFull is a store whose disk is full: nothing of the append was stored. It comes with ErrUnavailable.
	ErrFull = errors.New("disk of the event store is full")
)

// UnknownEventError is an event whose name is not in the catalogue, or whose Step, if that is not 0, the name does not
// have there.
type UnknownEventError struct {
	Stream string
	Type   string
	Step   int
}

func (e *UnknownEventError) Error() string {
	if e.Step > 0 {
		return fmt.Sprintf("unknown step %d of event %q in stream %q", e.Step, e.Type, e.Stream)
	}
	return fmt.Sprintf("unknown event %q in stream %q", e.Type, e.Stream)
}

// DecoderPanicError is the panic of the decoder of an event. Its text quotes nothing of the event.
type DecoderPanicError struct {
	Stream   string
	Revision Revision
	Type     string
	Value    any
}

func (e *DecoderPanicError) Error() string {
	value := fmt.Sprintf("a value of type %T", e.Value)
	if err, is := e.Value.(runtime.Error); is {
		value = err.Error()
	}
	return fmt.Sprintf("decode %s at %d of %s: panic: %s", e.Type, e.Revision, e.Stream, value)
}

// DecodedEvent is a recorded event with its decoded form. If it cannot be decoded, Err is set and
// Event is nil; only consumers of the stream's category need to handle that.
type DecodedEvent struct {
	Recorded
	Event   event.Event
	Details event.Meta
	Err     error
}

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

// OlderCopyError reports that the log went back: the event store was put back from an older copy. Until an
// operator decides how to go on, nothing may be written to it or be answered from what was applied.
type OlderCopyError struct {
	// Head is the newest position that the store has.
	Head Position
	// Applied is the position of an event that was applied or acknowledged, and that the store does not have.
	Applied Position
}

func (e *OlderCopyError) Error() string {
	if e.Head < e.Applied {
		return fmt.Sprintf("the log is an older copy: it ends at position %d, and position %d was applied",
			e.Head, e.Applied)
	}
	return fmt.Sprintf("the log is an older copy: it went on to position %d, without what was applied at position %d",
		e.Head, e.Applied)
}

// Unwrap makes it a store that is not ready.
func (e *OlderCopyError) Unwrap() error { return ErrUnavailable }
