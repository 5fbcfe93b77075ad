package trace

import (
	"context"
	"errors"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/eventstore"
)

// memoryBytes is the most bytes of the memories of one revision that are read.
const memoryBytes = 32 << 20

// MemoriesOf reads the memories of an event, inline or from its blob.
func MemoriesOf(ctx context.Context, blobs eventstore.BlobReader, e *memory.Derived) ([]memory.Memory, error) {
	if e.Blob == nil {
		return e.Memories, nil
	}
	if e.Blob.Size > memoryBytes {
		return nil, &eventstore.BlobError{Stream: e.Blob.Stream, Detail: "more memories than are read"}
	}
	data, err := blobs.ReadBlob(ctx, *e.Blob)
	if err != nil {
		return nil, err
	}
	list, err := memory.Decode(data)
	if err != nil {
		return nil, &eventstore.BlobError{Stream: e.Blob.Stream, Detail: err.Error()}
	}
	return list, nil
}

// IsLost reports whether a blob is gone or damaged.
func IsLost(err error) bool {
	_, lost := errors.AsType[*eventstore.BlobError](err)
	return lost
}
