package datapoints

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/table"
)

// blobRow collects what the events of a page change of a blob. No row is loaded for it: save writes
// each change with its own statement.
type blobRow struct {
	stream   string
	opened   *blob.Opened
	position eventstore.Position // of its first event
	referred bool
	send     uuid.UUID // the batch that it is the stage of
	ended    bool
}

func (f *fold) blob(name string) *blobRow {
	row := f.blobs[name]
	if row == nil {
		row = &blobRow{stream: name}
		f.blobs[name] = row
	}
	return row
}

// blobOpened applies the first event of a blob. It precedes every event that refers to the blob.
func (f *fold) blobOpened(at eventstore.Position, name string, e *blob.Opened) {
	row := f.blob(name)
	row.opened, row.position = e, at
}

// noteReferences marks the blobs that an event refers to.
func (f *fold) noteReferences(e event.Event) {
	switch e := e.(type) {
	case *datapoint.RevisionAccepted:
		f.markReferred(e.Content.Blob)
		if e.Metadata != nil {
			f.markReferred(e.Metadata.Blob)
		}
	case *memory.Derived:
		f.markReferred(e.Blob)
	case *identity.TraitsReplaced:
		f.markReferred(e.Record.Traits.Blob)
	case *identity.TraitsMerged:
		f.markReferred(e.Patch.Blob, e.Record.Traits.Blob)
	case *identity.BulkRowApplied:
		if e.Record != nil {
			f.markReferred(e.Record.Traits.Blob)
		}
	case *identity.BulkAccepted:
		f.markReferred(&e.Rows)
	case *audience.Put:
		f.markReferred(e.MembersBlob, e.RuleBlob)
	}
}

func (f *fold) markReferred(refs ...*blob.Ref) {
	for _, ref := range refs {
		if ref != nil && ref.Stream != "" {
			f.blob(ref.Stream).referred = true
		}
	}
}

// bulkFannedOut applies the end of a bulk write: its staged rows are no longer referred to. The
// write side tombstones them right after; the finisher sweeps what a crash leaves.
func (f *fold) bulkFannedOut(id uuid.UUID) { f.finishedBulks.add(id) }

// noteStage records which batch a blob is the stage of.
func (f *fold) noteStage(send uuid.UUID, e *ingestion.Accepted) {
	if e.Stage.Stream != "" {
		f.blob(e.Stage.Stream).send = send
	}
}

// streamTombstoned applies the tombstone of a stream.
func (f *fold) streamTombstoned(at eventstore.Position, name string) {
	if stream.Category(name) == stream.Blob {
		f.blob(name).ended = true
	}
	f.noteTombstone(at, name)
}

const (
	// holds is passed as the text of an array, since rows of an array of arrays have equal lengths.
	insertBlobs = `insert into blobs (stream, project_id, owner, deadline, referred, send, position, holds)
		select stream, project_id, owner, deadline, referred, send, position, holds::uuid[]
		from unnest($1::text[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::boolean[], $6::uuid[], $7::bigint[],
			$8::text[])
			as b (stream, project_id, owner, deadline, referred, send, position, holds)
		on conflict (stream) do nothing`
	updateBlobs = `update blobs b set referred = b.referred or n.referred, send = coalesce(n.send, b.send)
		from unnest($1::text[], $2::boolean[], $3::uuid[]) n (stream, referred, send) where b.stream = n.stream`
	releaseBlobs = `update blobs set referred = false, fanned_out = true where owner = any($1::uuid[])`
	deleteBlobs  = `delete from blobs where stream = any($1::text[])`
)

// uuidArray formats ids as the text of a Postgres array.
func uuidArray(list []uuid.UUID) string {
	ids := make([]string, len(list))
	for n, id := range list {
		ids[n] = id.String()
	}
	return "{" + strings.Join(ids, ",") + "}"
}

func (f *fold) saveBlobs(b *pgx.Batch) {
	var ended []string
	for name, row := range f.blobs {
		if row.ended {
			ended = append(ended, name)
		}
	}
	if rows := table.Filter(f.blobs, func(r *blobRow) bool { return r.opened != nil && !r.ended }); len(rows) > 0 {
		b.Queue(insertBlobs,
			pgarray.Column(rows, func(r *blobRow) string { return r.stream }),
			pgarray.IDs(rows, func(r *blobRow) uuid.UUID { return r.opened.ProjectID }),
			pgarray.IDs(rows, func(r *blobRow) uuid.UUID { return r.opened.Owner }),
			pgarray.Column(rows, func(r *blobRow) time.Time { return pgarray.Instant(r.opened.Deadline) }),
			pgarray.Column(rows, func(r *blobRow) bool { return r.referred }),
			pgarray.Column(rows, func(r *blobRow) *uuid.UUID { return pgarray.Optional(r.send) }),
			pgarray.Column(rows, func(r *blobRow) int64 { return int64(r.position) }),
			pgarray.Column(rows, func(r *blobRow) string { return uuidArray(r.opened.Holds) }))
	}
	if rows := table.Filter(f.blobs, func(r *blobRow) bool { return r.opened == nil && !r.ended }); len(rows) > 0 {
		b.Queue(updateBlobs,
			pgarray.Column(rows, func(r *blobRow) string { return r.stream }),
			pgarray.Column(rows, func(r *blobRow) bool { return r.referred }),
			pgarray.Column(rows, func(r *blobRow) *uuid.UUID { return pgarray.Optional(r.send) }))
	}
	if len(f.finishedBulks) > 0 {
		b.Queue(releaseBlobs, pgarray.Keys(f.finishedBulks))
	}
	if len(ended) > 0 {
		b.Queue(deleteBlobs, ended)
	}
}

// What somebody else did to a stream of ours in the event store.
const (
	StreamDeleted   = "deleted"   // tombstoned: nothing can be appended any more
	StreamHidden    = "hidden"    // soft-deleted: no event can be read
	StreamTruncated = "truncated" // its first events cannot be read
	StreamAged      = "aged"      // old events cannot be read
	StreamCounted   = "counted"   // all but its last events cannot be read
)

// damage is a row of table damaged_streams.
type damage struct {
	Stream   string              `db:"stream"`
	Damage   string              `db:"damage"`
	Position eventstore.Position `db:"position"`
}

var damagedStreams = table.New[damage](Name, schema, "damaged_streams")

// isOfDataPoint reports whether a stream is that of a data point or of its memories.
func isOfDataPoint(name string) bool {
	of := stream.Category(name)
	return of == stream.DataPoint || of == stream.Memory
}

// noteTombstone records that a stream ended that only the service ends, or that it does not end yet: those of a data
// point after its deletion.
func (f *fold) noteTombstone(at eventstore.Position, name string) {
	if !stream.IsOurs(name) {
		return
	}
	switch stream.Category(name) {
	case stream.DataPoint, stream.Memory:
		if f.dataPoints[stream.Owner(name)] == nil {
			f.damaged[name] = nil
			return
		}
	case stream.Blob, stream.Person, stream.Offer:
		f.damaged[name] = nil
		return
	}
	f.damaged[name] = &damage{name, StreamDeleted, at}
}

// metadataWritten records what metadata hides of a stream. The service itself truncates identities.
func (f *fold) metadataWritten(at eventstore.Position, e *eventstore.MetadataWritten) {
	what := ""
	switch of := stream.Category(e.Stream); {
	case isOfDataPoint(e.Stream) && f.dataPoints[stream.Owner(e.Stream)] == nil:
	case e.TruncatedBefore == eventstore.SoftDeleted:
		what = StreamHidden
	case e.Aged:
		what = StreamAged
	case e.Counted:
		what = StreamCounted
	case e.TruncatedBefore > 0 && of != stream.Identity:
		what = StreamTruncated
	}
	if what == "" {
		f.damaged[e.Stream] = nil
		return
	}
	f.damaged[e.Stream] = &damage{e.Stream, what, at}
}

// undamaged forgets the damage to the streams of a data point, which is deleted.
func (f *fold) undamaged(dataPoint uuid.UUID) {
	for _, of := range []string{stream.DataPoint, stream.Memory} {
		f.damaged[stream.Name(of, dataPoint)] = nil
	}
}

const deleteDamage = `delete from damaged_streams where stream = any($1::text[])`

func (f *fold) saveDamage(b *pgx.Batch) {
	var over []string
	for name, d := range f.damaged {
		if d == nil {
			over = append(over, name)
		}
	}
	if len(over) > 0 {
		slices.Sort(over) // two processes delete rows in the same order
		b.Queue(deleteDamage, over)
	}
	damagedStreams.Save(b, table.Filter(f.damaged, func(d *damage) bool { return d != nil }))
}

// DamagedStream is a stream of ours that somebody else ended or hid in the event store.
type DamagedStream struct {
	Stream string `json:"stream"`
	// Damage is deleted, hidden, truncated, aged or counted.
	Damage string `json:"damage"`
	// Position is that of the tombstone or of the metadata in the log.
	Position uint64 `json:"position"`
}

// DamagedStreams lists at most limit damaged streams by position, after a position; 0 begins.
func (q Queries) DamagedStreams(ctx context.Context, after uint64, limit int) ([]DamagedStream, error) {
	rows, err := q.DB.Query(ctx, `select stream, damage, position from datapoints.damaged_streams
		where position > $1 order by position limit $2`, int64(after), limit)
	if err != nil {
		return nil, fmt.Errorf("list damaged streams: %w", err)
	}
	damaged, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DamagedStream, err error) {
		err = row.Scan(&d.Stream, &d.Damage, &d.Position)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list damaged streams: %w", err)
	}
	return damaged, nil
}

// damagedPage is how many damaged streams EachDamaged reads at once.
const damagedPage = 500

// EachDamaged passes on all damaged streams by position.
func (q Queries) EachDamaged(ctx context.Context, emit func(DamagedStream) error) error {
	for after := uint64(0); ; {
		page, err := q.DamagedStreams(ctx, after, damagedPage)
		if err != nil {
			return err
		}
		for _, d := range page {
			if err := emit(d); err != nil {
				return err
			}
			after = d.Position
		}
		if len(page) < damagedPage {
			return nil
		}
	}
}

// UnreferencedBlobs lists at most limit blobs that may be swept at a time: blobs without a
// reference at their deadline, and blobs that can no longer be referred to. It leaves out what the
// fan-out of a batch may still refer to. A stage with text of a data point that is being erased
// counts from deadline early on.
func (q Queries) UnreferencedBlobs(ctx context.Context, at, early time.Time, limit int) ([]work.Blob, error) {
	rows, err := q.DB.Query(ctx, `select b.project_id, b.stream, b.owner, b.deadline, b.send is not null
		from datapoints.blobs b left join datapoints.sends s on s.id = b.send
		where not b.referred and case when b.send is null
			then b.fanned_out
				or b.deadline <= $1 and not exists (select from datapoints.batches o where b.owner = any(o.data_points))
				or exists (select from datapoints.sends o where o.id = b.owner)
				or exists (select from datapoints.erasures e where e.data_point = b.owner and e.facts_kept)
				or exists (select from datapoints.items i where i.data_point = b.owner and i.outcome not in ('unchanged',
					'moved') and i.deleted_at is not null)
				or b.deadline <= $3 and exists (select from datapoints.erasures e where e.data_point = any(b.holds))
			else s.fanned_out or s.deleted_at is not null end
		order by b.deadline, b.stream limit $2`, at, limit, early)
	if err != nil {
		return nil, fmt.Errorf("list unreferenced blobs: %w", err)
	}
	blobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b work.Blob, err error) {
		err = row.Scan(&b.ProjectID, &b.Stream, &b.Owner, &b.Deadline, &b.Stage)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list unreferenced blobs: %w", err)
	}
	return blobs, nil
}

// BlobsOf names the blobs with text of the data points: their own, and stages that are no longer
// needed.
func (q Queries) BlobsOf(ctx context.Context, dataPoints []uuid.UUID) ([]string, error) {
	rows, err := q.DB.Query(ctx, `select stream from datapoints.blobs where owner = any($1::uuid[])
		union select b.stream from datapoints.blobs b join datapoints.sends s on s.id = b.send
			where not b.referred and b.holds && $1::uuid[] and (s.fanned_out or s.deleted_at is not null)
		order by stream`, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("list blobs of data points: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list blobs of data points: %w", err)
	}
	return names, nil
}

// BatchesOf lists the batches that are not fanned out and contain any of the data points: their
// stages hold text of them.
func (q Queries) BatchesOf(ctx context.Context, dataPoints []uuid.UUID) ([]work.Batch, error) {
	rows, err := q.DB.Query(ctx, `select b.id, coalesce((select min(o.stream) from datapoints.blobs o
		where o.send = b.id), ''), s.final_phase = 'failed',
			array(select unnest(b.data_points) intersect select unnest($1::uuid[]))
		from datapoints.batches b join datapoints.sends s on s.id = b.id where b.data_points && $1::uuid[]
			order by b.id`, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("list batches of data points: %w", err)
	}
	batches, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b work.Batch, err error) {
		err = row.Scan(&b.IngestionID, &b.Stage, &b.Abandoned, &b.DataPoints)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list batches of data points: %w", err)
	}
	return batches, nil
}

// Copied reports which data points or identities may have a copy in an unreferenced stage: that of
// a send or bulk write that was not stored, or not yet. projects[n] is the project of ids[n].
func (q Queries) Copied(ctx context.Context, projects, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	rows, err := q.DB.Query(ctx, `select distinct k.id from unnest($1::uuid[], $2::uuid[]) k (project_id, id)
		join datapoints.blobs b on b.project_id = k.project_id and not b.referred and b.send is null and k.id = any(b.holds)`,
		projects, ids)
	if err != nil {
		return nil, fmt.Errorf("look for copies in stages: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("look for copies in stages: %w", err)
	}
	copied := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		copied[id] = true
	}
	return copied, nil
}

// Open counts the open work of the finisher.
func (q Queries) Open(ctx context.Context) (open work.Open, err error) {
	err = q.DB.QueryRow(ctx, `select
			(select count(*) from datapoints.sends where not fanned_out and final_phase <> 'failed') + (select count(*)
				from datapoints.deletions where not fanned_out),
			(select count(*) from datapoints.deletions where not cleaned), (select count(*) from datapoints.erasures),
				count(*), max(deadline)
		from datapoints.blobs where not referred and send is null`).
		Scan(&open.FanOuts, &open.Deletions, &open.DataPoints, &open.Blobs, &open.Until)
	if err != nil {
		return open, fmt.Errorf("count open work: %w", err)
	}
	return open, nil
}

// FollowedUp returns which of the data points have text that a follow-up of their deletion has yet to delete,
// in this projection or in that of memories.
func (q Queries) FollowedUp(ctx context.Context, dataPoints []uuid.UUID) (map[uuid.UUID]bool, error) {
	rows, err := q.DB.Query(ctx, `select key from datapoints.follow_ups where key = any($1::uuid[])
		union select key from memories.follow_ups where key = any($1::uuid[])`, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("look for follow-ups of deletions: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("look for follow-ups of deletions: %w", err)
	}
	followed := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		followed[id] = true
	}
	return followed, nil
}

// HasFollowUps reports whether any data point has such text.
func (q Queries) HasFollowUps(ctx context.Context) (left bool, err error) {
	err = q.DB.QueryRow(ctx, `select exists (select from datapoints.follow_ups) or exists (select from memories.follow_ups)`).
		Scan(&left)
	if err != nil {
		return false, fmt.Errorf("look for follow-ups: %w", err)
	}
	return left, nil
}
