package eventstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore/backoff"
)

// Journal is an event store with the codec of its events, for callers that append and read decoded
// events. Copies share their state, and it is safe for concurrent use.
//
// Reads fail with an *UnreadableError on an event that cannot be decoded, unless an operator has set it aside: then
// they return it as PassedOver.
type Journal struct {
	Store Store
	Codec *Codec
	// Aside has the events that are set aside. Nil passes over none.
	Aside *SetAside
}

// UnreadableError is an event that cannot be decoded, until it is repaired or a program runs that
// can decode it.
type UnreadableError struct {
	Stream   string
	Revision Revision
	Err      error
}

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("event %d of %s cannot be read: %v", e.Revision, e.Stream, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// Append encodes the events of one command and appends them at an exact stream revision. It repeats
// an append with an unknown outcome until the context ends; see AppendUntilKnown.
func (j Journal) Append(
	ctx context.Context, stream string, expected Revision, meta event.Meta, events ...event.Event,
) (Appended, error) {
	proposed, err := j.Codec.EncodeAll(events, meta)
	if err != nil {
		return Appended{}, err
	}
	return AppendUntilKnown(ctx, j.Store, stream, expected, proposed)
}

// Last reads the last event of a stream that is not passed over. ok is false if the stream has none. In both cases
// its Revision is that of the end of the stream, where the next append goes on: NoStream if it has no events at all.
func (j Journal) Last(ctx context.Context, stream string) (last DecodedEvent, ok bool, err error) {
	recorded, ok, err := j.Store.ReadLast(ctx, stream)
	if err != nil || !ok {
		return DecodedEvent{Recorded: Recorded{Revision: NoStream}}, false, err
	}
	if last, err = j.Decode(ctx, recorded); err != nil || !last.IsPassedOver() {
		return last, true, err
	}
	end := recorded.Revision
	for from := end - 1; from >= 0; {
		events, err := j.Read(ctx, stream, from, Backwards, scanLimit)
		if err != nil {
			return DecodedEvent{}, false, err
		}
		for _, f := range events {
			if !f.IsPassedOver() {
				f.Revision = end
				return f, true, nil
			}
		}
		if len(events) < scanLimit {
			break
		}
		from = events[len(events)-1].Revision - 1
	}
	return DecodedEvent{Recorded: Recorded{Revision: end}}, false, nil
}

// At reads the event at one revision of a stream. ok is false if there is no such event.
func (j Journal) At(ctx context.Context, stream string, revision Revision) (e DecodedEvent, ok bool, err error) {
	records, err := j.Store.Read(ctx, stream, revision, Forwards, 1)
	if err != nil || len(records) == 0 || records[0].Revision != revision {
		return DecodedEvent{}, false, err
	}
	e, err = j.Decode(ctx, records[0])
	return e, true, err
}

// Read reads at most limit events of a stream from a revision (inclusive). Fewer than limit mean
// that there are no more in this direction.
func (j Journal) Read(
	ctx context.Context, stream string, from Revision, direction Direction, limit int,
) ([]DecodedEvent, error) {
	records, err := j.Store.Read(ctx, stream, from, direction, limit)
	if err != nil {
		return nil, err
	}
	events := make([]DecodedEvent, len(records))
	for i, r := range records {
		if events[i], err = j.Decode(ctx, r); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// readLimit is how many events ReadFrom reads at a time.
const readLimit = 256

// ReadFrom reads all events of a stream from a revision (inclusive) on.
func (j Journal) ReadFrom(ctx context.Context, stream string, from Revision) ([]DecodedEvent, error) {
	var all []DecodedEvent
	for {
		next, err := j.Read(ctx, stream, from, Forwards, readLimit)
		if err != nil {
			return nil, err
		}
		all = append(all, next...)
		if len(next) < readLimit {
			return all, nil
		}
		from = next[len(next)-1].Revision + 1
	}
}

// scanLimit is how many events Scan reads at a time. Most have at most blob.InlineLimit bytes.
const scanLimit = 64

// Scan calls visit for each event of a stream from a revision (inclusive) on, until visit returns
// false. It holds at most scanLimit events in memory.
func (j Journal) Scan(
	ctx context.Context, stream string, from Revision, visit func(DecodedEvent) (more bool, err error),
) error {
	for {
		events, err := j.Read(ctx, stream, from, Forwards, scanLimit)
		if err != nil {
			return err
		}
		for _, e := range events {
			if more, err := visit(e); err != nil || !more {
				return err
			}
			from = e.Revision + 1
		}
		if len(events) < scanLimit {
			return nil
		}
	}
}

// Decode decodes an event as reads do.
func (j Journal) Decode(ctx context.Context, r Recorded) (DecodedEvent, error) {
	e := j.Codec.DecodeRecorded(r)
	if passes, err := j.Aside.passes(ctx, e); passes || err != nil {
		return DecodedEvent{Recorded: r, Event: PassedOver{}}, err
	}
	if e.Err != nil {
		return e, &UnreadableError{Stream: r.Stream, Revision: r.Revision, Err: e.Err}
	}
	return e, nil
}

// AppendUntilKnown appends and, while the outcome is ErrUnknown, repeats the append with the same
// event ids until the context ends. The error is then ErrUnknown with the cause of the context.
func AppendUntilKnown(
	ctx context.Context, store Store, stream string, expected Revision, events []Proposed,
) (Appended, error) {
	for pause := backoff.Conflict(); ; {
		done, err := store.Append(ctx, stream, expected, events)
		if !errors.Is(err, ErrUnknown) {
			return done, err
		}
		if ended := pause.Wait(ctx); ended != nil {
			return Appended{}, fmt.Errorf("%w: %w", err, ended)
		}
	}
}

// BlobError is a blob that cannot be read as it was written.
type BlobError struct {
	Stream string
	// Missing is true if the blob is gone or was never completed, false if its content differs.
	Missing bool
	Detail  string
}

func (e *BlobError) Error() string {
	if e.Missing {
		return fmt.Sprintf("blob %s is missing: %s", e.Stream, e.Detail)
	}
	return fmt.Sprintf("blob %s is damaged: %s", e.Stream, e.Detail)
}

// BlobReader reads blobs. Journal implements it.
type BlobReader interface {
	// ReadBlob reads a whole blob. The error is a *BlobError if it is gone or damaged.
	ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error)
}

// WriteBlob writes data to the blob stream of an owner and a command, and returns the reference
// once all of it is stored. Holds are the data points or identities whose text a stage holds; a
// blob that is only its owner's has none. A blob that no event refers to by the deadline may be
// swept.
//
// The events have the id of the command, whatever meta has: the same call may be repeated after any
// error, and a command that needs several blobs needs several ids.
func (j Journal) WriteBlob(
	ctx context.Context, owner, command, projectID uuid.UUID, deadline time.Time, meta event.Meta, data []byte,
	holds ...uuid.UUID,
) (blob.Ref, error) {
	meta.CommandID = command
	name := stream.BlobName(owner, command)
	opened := blob.Opened{
		ProjectID: projectID, Owner: owner, Deadline: deadline.UTC().Truncate(time.Microsecond),
		Holds: append([]uuid.UUID{}, holds...),
	}
	first, err := j.Codec.Encode(opened, 0, meta)
	if err != nil {
		return blob.Ref{}, err
	}
	page, at := []Proposed{first}, NoStream
	for n, rest := 1, data; ; n++ {
		if len(rest) > 0 {
			size := min(len(rest), blob.ChunkSize)
			chunk, err := j.Codec.Encode(blob.Chunk{Data: rest[:size]}, n, meta)
			if err != nil {
				return blob.Ref{}, err
			}
			page, rest = append(page, chunk), rest[size:]
		}
		done, err := AppendUntilKnown(ctx, j.Store, name, at, page)
		if err != nil {
			return blob.Ref{}, fmt.Errorf("write blob: %w", err)
		}
		page, at = page[:0], done.Revision
		if len(rest) == 0 {
			break
		}
	}
	sum := sha256.Sum256(data)
	return blob.Ref{Stream: name, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}, nil
}

// blobPage is how many chunks ReadBlob reads at a time: 4 MiB.
const blobPage = 8

// ReadBlob implements BlobReader. It checks the size and the hash of the blob.
func (j Journal) ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error) {
	var data []byte
	for next := Revision(0); ; {
		events, err := j.Store.Read(ctx, ref.Stream, next, Forwards, blobPage)
		if errors.Is(err, ErrDeleted) {
			return nil, &BlobError{Stream: ref.Stream, Missing: true, Detail: "the stream was deleted"}
		}
		if err != nil {
			return nil, fmt.Errorf("read blob: %w", err)
		}
		for _, r := range events {
			decoded, err := j.Codec.Decode(r)
			if err != nil {
				return nil, &BlobError{Stream: ref.Stream, Detail: err.Error()}
			}
			switch e := decoded.(type) {
			case *blob.Opened:
			case blob.Chunk:
				data = append(data, e.Data...)
			default:
				return nil, &BlobError{Stream: ref.Stream, Detail: "unexpected event " + r.Type}
			}
			if int64(len(data)) > ref.Size {
				detail := fmt.Sprintf("more than the %d bytes of the reference", ref.Size)
				return nil, &BlobError{Stream: ref.Stream, Detail: detail}
			}
			next = r.Revision + 1
		}
		if len(events) < blobPage {
			break
		}
	}
	if int64(len(data)) < ref.Size {
		detail := fmt.Sprintf("%d of %d bytes", len(data), ref.Size)
		return nil, &BlobError{Stream: ref.Stream, Missing: true, Detail: detail}
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != ref.SHA256 {
		return nil, &BlobError{Stream: ref.Stream, Detail: "the content has a different hash"}
	}
	return data, nil
}

// ReadBlobStart reads the first chunk of a blob, which is all of a small one. The error is a
// *BlobError if it is gone or damaged. The hash of the blob is not checked.
func (j Journal) ReadBlobStart(ctx context.Context, ref blob.Ref) ([]byte, error) {
	events, err := j.Store.Read(ctx, ref.Stream, 1, Forwards, 1)
	if errors.Is(err, ErrDeleted) || err == nil && len(events) == 0 && ref.Size > 0 {
		return nil, &BlobError{Stream: ref.Stream, Missing: true, Detail: "its first chunk is not there"}
	}
	if err != nil {
		return nil, fmt.Errorf("read blob: %w", err)
	}
	if len(events) == 0 {
		return nil, nil
	}
	decoded, err := j.Codec.Decode(events[0])
	if err != nil {
		return nil, &BlobError{Stream: ref.Stream, Detail: err.Error()}
	}
	chunk, is := decoded.(blob.Chunk)
	if !is {
		return nil, &BlobError{Stream: ref.Stream, Detail: "unexpected event " + events[0].Type}
	}
	return chunk.Data, nil
}

// TombstoneBlob ends the stream of a blob at whatever revision it has, so that it can never be written
// again. done is false if it is tombstoned already, or if it has no events, in which case it stays as
// it is.
//
// It refuses other streams: before their events leave the log, their records are kept.
func (j Journal) TombstoneBlob(ctx context.Context, name string) (done bool, err error) {
	if stream.Category(name) != stream.Blob {
		return false, fmt.Errorf("tombstone %s: it is no blob", name)
	}
	for {
		last, ok, err := j.Store.ReadLast(ctx, name)
		if errors.Is(err, ErrDeleted) || (err == nil && !ok) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		_, err = j.Store.Tombstone(ctx, name, last.Revision)
		if errors.Is(err, ErrDeleted) {
			return false, nil
		}
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, ErrConflict) || ctx.Err() != nil {
			return false, err
		}
	}
}
