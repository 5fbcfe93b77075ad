// Package blob is the claim check: text too big for an event is written to a stream of its own
// before anything refers to it.
package blob

import (
	"time"

	"github.com/google/uuid"
)

// ChunkSize is the most bytes that one chunk holds.
const ChunkSize = 512 << 10

// InlineLimit is the largest encoded event; above it the text of the event goes into a blob. In
// bytes of JSON.
const InlineLimit = 256 << 10

const (
	// Keep is how long a blob that nothing refers to is kept after its write.
	Keep = 24 * time.Hour
	// StageKeep is how long an unreferenced stage is kept once it holds text of an erased data
	// point. It is longer than any command runs; a commit that is even later is not made (see
	// referWithin in commands/engine).
	StageKeep = 10 * time.Minute
)

// Opened begins a blob. Owner is whose erasure takes the blob along: a data point or an identity; a
// send or a bulk write, for what they stage; the project, for what its audiences list, which stays.
// Deadline is the time after which a blob that nothing refers to may be swept.
//
// Holds are the data points of a staged send, or the identities of a staged bulk write, whose text
// is in the blob: they cannot be erased while it may be fanned out. It is empty for a blob that is its
// owner's alone.
type Opened struct {
	ProjectID uuid.UUID   `json:"projectId"`
	Owner     uuid.UUID   `json:"owner"`
	Deadline  time.Time   `json:"deadline"`
	Holds     []uuid.UUID `json:"holds"`
}

func (Opened) EventType() string { return "blob.opened.v1" }

// ChunkType is the stored name of a chunk, whose data is up to ChunkSize raw bytes and not JSON.
const ChunkType = "blob.chunk.v1"

// Chunk is a piece of a blob, in order of the stream.
type Chunk struct{ Data []byte }

func (Chunk) EventType() string { return ChunkType }

// Ref points at a blob that is complete. SHA256 (lower-case hexadecimal) is of the whole.
type Ref struct {
	Stream string `json:"stream"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}
