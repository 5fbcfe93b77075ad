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
	and not i.outdated) or i.deleted_at is null and exists (select from datapoints.follow_ups w
		where w.kind = 'delete' and w.key = i.data_point and (w.data::jsonb->>'newest')::int = i.revision))`

// clientOutcome is the outcome that a client reads. A deletion is recorded only with the items that
// created a revision, since a data point may have far more unchanged ones, and with those not at once.
const clientOutcome = `case when i.deleted_at is not null
		or not exists (select from datapoints.data_points d where d.id = i.data_point)
	then 'deleted' else i.outcome end`

// clientPhase is the phase that a client reads. If a watermark preceded the failure of the index,
// the item counts as captured.
const clientPhase = `case when i.phase = 'unindexed' and s.phase = 'indexed' then 'captured'
	when i.phase <> 'erased' and not exists (select from datapoints.data_points d where d.id = i.data_point) then 'done'
	else i.phase end`

// waitingItems counts, for a row s of sends, the items whose deletion a follow-up has yet to apply, with
// the time of the last deletion. It reads no item if there are no follow-ups.
const waitingItems = ` cross join lateral (
		select count(*) as items, max((w.data::jsonb->>'deletedAt')::timestamptz) as at
		from datapoints.items i join datapoints.follow_ups w on w.kind = 'delete' and w.key = i.data_point
		where exists (select from datapoints.follow_ups) and i.ingestion_id = s.id and i.deleted_at is null
			and i.outcome in ('created', 'updated')
	) w `

// endedByDeletion reports that no item of a send is left but for deletions that a follow-up has yet to
// apply: the send counts as indexed, as in derivePhase.
const endedByDeletion = `(w.items > 0 and s.fanned_out and s.phase not in ('indexed', 'nothing-changed')
	and s.unchanged + s.deleted + w.items = s.item_count)`
