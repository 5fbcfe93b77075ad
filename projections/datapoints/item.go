package datapoints

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/table"
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
	Send    uuid.UUID `db:"ingestion_id"`
	Ordinal int       `db:"ordinal"`
}

// item is a row of table items.
type item struct {
	itemKey
	Project   uuid.UUID           `db:"project_id,once"`
	DataPoint uuid.UUID           `db:"data_point,once"`
	Revision  int                 `db:"revision"`
	Historic  bool                `db:"historic"`
	Outcome   string              `db:"outcome"`
	Phase     string              `db:"phase"`
	Attempt   int                 `db:"attempt"`
	Code      *string             `db:"failure_code"`
	Message   *string             `db:"failure_message"`
	Overtaken bool                `db:"overtaken"`
	DeletedAt *time.Time          `db:"deleted_at"`
	Outdated  bool                `db:"outdated"`
	Batch     bool                `db:"batch,once"`
	Bytes     int64               `db:"bytes"`
	Due       work.Lane           `db:"due,null"` // "" if it may not be leased
	Position  eventstore.Position `db:"position"`

	// What the stored row is, the zero value for none.
	wasOpen bool
	counted itemShare
	dirty   bool
}

var items = table.New[item](Name, schema, "items")

// isDeleted reports whether the data point of the item was deleted, before or after the item.
func (i *item) isDeleted() bool { return i.DeletedAt != nil || i.Outcome == ingestion.Deleted }

// keepsRevision reports whether the item was unchanged or moved.
func (i *item) keepsRevision() bool {
	return i.Outcome == ingestion.Unchanged || i.Outcome == ingestion.Moved
}

// createsRevision reports whether an outcome created a revision.
func createsRevision(outcome string) bool {
	return outcome == ingestion.Created || outcome == ingestion.Updated
}

// hasFailed reports whether the item makes its send fail.
func (i *item) hasFailed() bool { return i.Phase == failed || i.Phase == unindexed }

// isOpen reports whether a worker may work on the item.
func (i *item) isOpen() bool { return i.Phase == queued || i.Phase == processing }

// markDeleted ends the item since its data point was deleted. It also drops attempts and failures.
func (i *item) markDeleted(at time.Time) {
	i.Bytes = 0
	i.DeletedAt, i.Phase, i.Attempt, i.Code, i.Message, i.Overtaken = &at, done, 0, nil, nil, false
}

// withoutNUL replaces U+0000, which a text column cannot hold and a quoted failure may contain.
func withoutNUL(text string) *string {
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	return &text
}
