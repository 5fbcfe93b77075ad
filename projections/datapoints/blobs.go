package datapoints

import (
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
