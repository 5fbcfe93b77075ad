package datapoints

import "github.com/google/uuid"

// Item is an item of a send as clients see it.
type Item struct {
	Ordinal   int
	DataPoint uuid.UUID
	// SourceID is "" if the data point was deleted.
	SourceID string
	// Revision is the revision of the data point after the item, 0 if it was deleted before.
	Revision int
	// Outcome is created, updated, unchanged or moved, or deleted if its data point was deleted
	// since.
	Outcome string
	// Phase is queued, processing, captured, failed, done, or unindexed if the send failed on the
	// index.
	Phase string
	// Searchable reports whether recall can find the revision now. Memories counts what was derived
	// from it.
	Searchable bool
	Memories   int
}

// inSendList selects the items that a send lists. Once the send is deleted, it no longer lists
// items that were unchanged, or revised by another send since, even if they are deleted later.
const inSendList = `(s.deleted_at is null or i.outcome = 'deleted' or (i.deleted_at is not null
	and not i.superseded))`

// clientOutcome is the outcome that a client reads. A deletion is recorded only with the items that
// created a revision, since a data point may have far more unchanged ones.
const clientOutcome = `case when i.deleted_at is not null
		or i.outcome in ('unchanged', 'moved') and not exists (select from datapoints.data_points d
			where d.id = i.data_point)
	then 'deleted' else i.outcome end`

// clientPhase is the phase that a client reads. If a watermark preceded the failure of the index,
// the item counts as captured.
const clientPhase = `case when i.phase = 'unindexed' and s.phase = 'indexed' then 'captured' else i.phase end`
