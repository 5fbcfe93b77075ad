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

// BlobError is a blob that cannot be read back as it was written.
type BlobError struct {
	Stream string
	// Missing is true where the blob is gone or was never completed, false where its content is another.
	Missing bool
	Detail  string
}

func (e *BlobError) Error() string {
	if e.Missing {
		return fmt.Sprintf("blob %s is missing: %s", e.Stream, e.Detail)
	}
	return fmt.Sprintf("blob %s is damaged: %s", e.Stream, e.Detail)
}

// WriteBlob writes data to the blob stream of an owner and a command, and answers the reference to it once all of it is stored.
// Holds are the data points or identities whose text a stage holds, none for a blob that is its owner's alone.
// A blob that no event refers to by the deadline may be swept. The events bear the command's id whatever meta says, so the same
// call may be made again after any error, and a command that needs several blobs needs several ids.
func WriteBlob(ctx context.Context, store Store, codec *Codec, owner, command, projectID uuid.UUID, deadline time.Time, meta event.Meta, data []byte, holds ...uuid.UUID) (blob.Ref, error) {
	meta.CommandID = command
	name := stream.BlobName(owner, command)
	opened := blob.Opened{ProjectID: projectID, Owner: owner, Deadline: deadline.UTC().Truncate(time.Microsecond), Holds: append([]uuid.UUID{}, holds...)}
	first, err := codec.Encode(opened, 0, meta)
	if err != nil {
		return blob.Ref{}, err
	}
	page, at := []Proposed{first}, NoStream
	for n, rest := 1, data; ; n++ {
		if len(rest) > 0 {
			size := min(len(rest), blob.ChunkSize)
			chunk, err := codec.Encode(blob.Chunk{Data: rest[:size]}, n, meta)
			if err != nil {
				return blob.Ref{}, err
			}
			page, rest = append(page, chunk), rest[size:]
		}
		done, err := AppendUntilKnown(ctx, store, name, at, page)
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

// blobPage is how many chunks are read at a time: 4 MiB.
const blobPage = 8

// ReadBlob reads a blob whole and proves its size and its hash; where they do not hold, or the blob is gone, the error is a *BlobError.
func ReadBlob(ctx context.Context, store Store, codec *Codec, ref blob.Ref) ([]byte, error) {
	var data []byte
	for next := Revision(0); ; {
		events, err := store.Read(ctx, ref.Stream, next, Forwards, blobPage)
		if errors.Is(err, ErrDeleted) {
			return nil, &BlobError{Stream: ref.Stream, Missing: true, Detail: "the stream was deleted"}
		}
		if err != nil {
			return nil, fmt.Errorf("read blob: %w", err)
		}
		for _, r := range events {
			decoded, err := codec.Decode(r)
			if err != nil {
				return nil, &BlobError{Stream: ref.Stream, Detail: err.Error()}
			}
			switch e := decoded.(type) {
			case *blob.Opened:
			case blob.Chunk:
				data = append(data, e.Data...)
			default:
				return nil, &BlobError{Stream: ref.Stream, Detail: "an event that belongs to no blob: " + r.Type}
			}
			if int64(len(data)) > ref.Size {
				return nil, &BlobError{Stream: ref.Stream, Detail: fmt.Sprintf("more than the %d bytes of the reference", ref.Size)}
			}
			next = r.Revision + 1
		}
		if len(events) < blobPage {
			break
		}
	}
	if int64(len(data)) < ref.Size {
		return nil, &BlobError{Stream: ref.Stream, Missing: true, Detail: fmt.Sprintf("%d of %d bytes", len(data), ref.Size)}
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != ref.SHA256 {
		return nil, &BlobError{Stream: ref.Stream, Detail: "the content has another hash"}
	}
	return data, nil
}
