package todo

import (
	"time"

	"github.com/google/uuid"
)

// Blob is a blob that nothing refers to any more, or not in time: it may be swept once that was seen on the streams.
type Blob struct {
	ProjectID uuid.UUID
	Stream    string
	// Owner is a data point, the send of a stage, an identity, a bulk write of identities, or the project of audiences.
	Owner    uuid.UUID
	Deadline time.Time
	// Stage is true for the stage of a batch that is fanned out, or deleted: it has no deadline to wait for.
	Stage bool
}

// Batch is a committed batch that is not fanned out, with the blob that holds its items.
type Batch struct {
	IngestionID uuid.UUID
	// Stage is "" where it is not known.
	Stage string
	// Lost is true for one that was given up since its stage cannot be read.
	Lost bool
	// DataPoints are those of its data points that were asked for.
	DataPoints []uuid.UUID
}

// Open counts what the finisher has before it.
type Open struct {
	// FanOuts are committed batches, bulk writes and deletions that are not fanned out.
	FanOuts int `json:"fanOuts"`
	// Deletions are those that are not cleaned, Erasures the data points in them.
	Deletions int `json:"deletions"`
	Erasures  int `json:"erasures"`
	// Identities are removed ones whose text is not known to be gone.
	Identities int `json:"identities"`
	// Blobs are those that nothing refers to; Until is when the last of them may be swept.
	Blobs int        `json:"blobs"`
	Until *time.Time `json:"until,omitempty"`
}
