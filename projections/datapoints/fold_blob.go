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
	"github.com/annals-project/annals/internal/unnest"
)

// blobRow is what a page says of a blob. No row is loaded for it: each of these is a statement by itself.
type blobRow struct {
	stream   string
	begun    *blob.Opened
	position eventstore.Position // of its begin
	referred bool
	send     uuid.UUID // the batch whose stage it is
	ended    bool
}

func (p *page) blob(name string) *blobRow {
	row := p.blobs[name]
	if row == nil {
		row = &blobRow{stream: name}
		p.blobs[name] = row
	}
	return row
}

// begun applies the begin of a blob, which comes before whatever refers to it.
func (p *page) begun(at eventstore.Position, name string, e *blob.Opened) {
	row := p.blob(name)
	row.begun, row.position = e, at
}

// refer notes the blobs that an event refers to.
func (p *page) refer(e event.Event) {
	switch e := e.(type) {
	case *datapoint.RevisionAccepted:
		p.referTo(e.Content.Blob)
		if e.Metadata != nil {
			p.referTo(e.Metadata.Blob)
		}
	case *memory.Derived:
		p.referTo(e.Blob)
	case *identity.TraitsReplaced:
		p.referTo(e.Record.Traits.Blob)
	case *identity.TraitsMerged:
		p.referTo(e.Patch.Blob, e.Record.Traits.Blob)
	case *identity.BulkRowApplied:
		if e.Record != nil {
			p.referTo(e.Record.Traits.Blob)
		}
	case *identity.BulkAccepted:
		p.referTo(&e.Rows)
	case *audience.Put:
		p.referTo(e.MembersBlob, e.RuleBlob)
	}
}

func (p *page) referTo(refs ...*blob.Ref) {
	for _, ref := range refs {
		if ref != nil && ref.Stream != "" {
			p.blob(ref.Stream).referred = true
		}
	}
}

// bulkFannedOut applies the end of a bulk write: nothing refers to its rows any more. They are ended right after it, and what a crash
// leaves of them is loose.
func (p *page) bulkFannedOut(id uuid.UUID) { p.spent.add(id) }

// staged notes which batch a blob is the stage of.
func (p *page) staged(send uuid.UUID, e *ingestion.Accepted) {
	if e.Stage.Stream != "" {
		p.blob(e.Stage.Stream).send = send
	}
}

// ended applies the end of a stream, whatever it was.
func (p *page) ended(name string) {
	if stream.Family(name) == stream.Blob {
		p.blob(name).ended = true
	}
}

const (
	// What a blob holds comes as the text of an array: an array of arrays has rows of one length only.
	insertBlobs = `insert into blobs (stream, project_id, owner, deadline, referred, send, position, holds)
		select stream, project_id, owner, deadline, referred, send, position, holds::uuid[]
		from unnest($1::text[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::boolean[], $6::uuid[], $7::bigint[], $8::text[])
			as b (stream, project_id, owner, deadline, referred, send, position, holds)
		on conflict (stream) do nothing`
	updateBlobs = `update blobs b set referred = b.referred or n.referred, send = coalesce(n.send, b.send)
		from unnest($1::text[], $2::boolean[], $3::uuid[]) n (stream, referred, send) where b.stream = n.stream`
	releaseBlobs = `update blobs set referred = false, spent = true where owner = any($1::uuid[])`
	deleteBlobs  = `delete from blobs where stream = any($1::text[])`
)

// arrayOf is a list of ids as Postgres writes an array, nil for a nil list.
func arrayOf(list []uuid.UUID) *string {
	if list == nil {
		return nil
	}
	ids := make([]string, len(list))
	for n, id := range list {
		ids[n] = id.String()
	}
	text := "{" + strings.Join(ids, ",") + "}"
	return &text
}

func (p *page) saveBlobs(b *pgx.Batch) {
	var ended []string
	for name, row := range p.blobs {
		if row.ended {
			ended = append(ended, name)
		}
	}
	if rows := dirty(p.blobs, func(r *blobRow) bool { return r.begun != nil && !r.ended }); len(rows) > 0 {
		b.Queue(insertBlobs,
			unnest.Column(rows, func(r *blobRow) string { return r.stream }),
			unnest.IDs(rows, func(r *blobRow) uuid.UUID { return r.begun.ProjectID }),
			unnest.IDs(rows, func(r *blobRow) uuid.UUID { return r.begun.Owner }),
			unnest.Column(rows, func(r *blobRow) time.Time { return unnest.Instant(r.begun.Deadline) }),
			unnest.Column(rows, func(r *blobRow) bool { return r.referred }),
			unnest.Column(rows, func(r *blobRow) *[16]byte { return (*[16]byte)(unnest.Optional(r.send)) }),
			unnest.Column(rows, func(r *blobRow) int64 { return int64(r.position) }),
			unnest.Column(rows, func(r *blobRow) *string { return arrayOf(r.begun.Holds) }))
	}
	if rows := dirty(p.blobs, func(r *blobRow) bool { return r.begun == nil && !r.ended }); len(rows) > 0 {
		b.Queue(updateBlobs,
			unnest.Column(rows, func(r *blobRow) string { return r.stream }),
			unnest.Column(rows, func(r *blobRow) bool { return r.referred }),
			unnest.Column(rows, func(r *blobRow) *[16]byte { return (*[16]byte)(unnest.Optional(r.send)) }))
	}
	if len(p.spent) > 0 {
		b.Queue(releaseBlobs, unnest.Keys(p.spent))
	}
	if len(ended) > 0 {
		b.Queue(deleteBlobs, ended)
	}
}
