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
)

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
