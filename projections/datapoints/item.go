package datapoints

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
)

// The phases of an item.
const (
	queued     = "queued"     // accepted, with a revision to derive
	processing = "processing" // a worker began
	captured   = "captured"   // its memories are stored, or it is history and has none
	failed     = "failed"     // no further attempt before a retry
	unindexed  = "unindexed"  // captured, but its send failed on the index
	done       = "done"       // nothing to do: unchanged, moved or deleted
	// erased is an item that the fan-out of its batch speaks of while nothing else is known: the data point was erased
	// before this replay began, and what was kept of it comes later.
	erased = "erased"
)

type itemKey struct {
	send    uuid.UUID
	ordinal int
}

// item is a row of table items.
type item struct {
	itemKey
	project    uuid.UUID
	dataPoint  uuid.UUID
	revision   int
	historic   bool
	outcome    string
	phase      string
	attempt    int
	code       *string
	message    *string
	moot       bool
	deletedAt  *time.Time
	superseded bool
	position   eventstore.Position

	dirty bool
}

// gone reports whether the data point of the item was deleted, before or after it.
func (i *item) gone() bool { return i.deletedAt != nil || i.outcome == ingestion.Deleted }

// changedNothing reports whether the item brought no revision.
func (i *item) changedNothing() bool { return unchanged(i.outcome) }

func unchanged(outcome string) bool {
	return outcome == ingestion.Unchanged || outcome == ingestion.Moved
}

// brought reports whether an outcome stands for a revision of its own.
func brought(outcome string) bool {
	return outcome == ingestion.Created || outcome == ingestion.Updated
}

// stopped reports whether the item is why its send fails.
func (i *item) stopped() bool { return i.phase == failed || i.phase == unindexed }

// open reports whether a worker may work on the item.
func (i *item) open() bool { return i.phase == queued || i.phase == processing }

// end takes what the item was in the middle of. What was tried and failed on a deleted data point is not told any more.
func (i *item) end(at time.Time) {
	i.deletedAt, i.phase, i.attempt, i.code, i.message, i.moot = &at, done, 0, nil, nil, false
}

// holdable is a text for people as a column of text holds it: without U+0000, which a failure may quote from elsewhere.
func holdable(text string) *string {
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	return &text
}
