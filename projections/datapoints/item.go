package datapoints

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

// The phases of an item.
const (
	queued     = "queued"     // accepted, with a revision to derive
	processing = "processing" // an attempt has started
	captured   = "captured"   // its memories are stored, or it is historic and has none
	failed     = "failed"     // no further attempt before a retry
	unindexed  = "unindexed"  // captured, but its send failed on the index
	done       = "done"       // nothing to do: unchanged, moved or deleted
	// erased is the phase of an item that a replay knows from the fan-out of its batch only, since
	// its data point was erased. The retained facts follow later in the log.
	erased = "erased"
)

type itemKey struct {
	send    uuid.UUID
	ordinal int
}

// item is a row of table items.
type item struct {
	itemKey
	project   uuid.UUID
	dataPoint uuid.UUID
	revision  int
	historic  bool
	outcome   string
	phase     string
	attempt   int
	code      *string
	message   *string
	overtaken bool
	deletedAt *time.Time
	outdated  bool
	batch     bool
	bytes     int64
	due       work.Lane // "" if it may not be leased
	position  eventstore.Position

	// What the stored row is, the zero value for none.
	wasOpen bool
	counted itemShare
	dirty   bool
}

// isDeleted reports whether the data point of the item was deleted, before or after the item.
func (i *item) isDeleted() bool { return i.deletedAt != nil || i.outcome == ingestion.Deleted }

// keepsRevision reports whether the item was unchanged or moved.
func (i *item) keepsRevision() bool {
	return i.outcome == ingestion.Unchanged || i.outcome == ingestion.Moved
}

// createsRevision reports whether an outcome created a revision.
func createsRevision(outcome string) bool {
	return outcome == ingestion.Created || outcome == ingestion.Updated
}

// hasFailed reports whether the item makes its send fail.
func (i *item) hasFailed() bool { return i.phase == failed || i.phase == unindexed }

// isOpen reports whether a worker may work on the item.
func (i *item) isOpen() bool { return i.phase == queued || i.phase == processing }

// markDeleted ends the item since its data point was deleted. It also drops attempts and failures.
func (i *item) markDeleted(at time.Time) {
	i.bytes = 0
	i.deletedAt, i.phase, i.attempt, i.code, i.message, i.overtaken = &at, done, 0, nil, nil, false
}

// withoutNUL replaces U+0000, which a text column cannot hold and a quoted failure may contain.
func withoutNUL(text string) *string {
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	return &text
}
