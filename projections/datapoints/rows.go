package datapoints

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections/table"
)

// dataPointRow is a row of table data_points.
type dataPointRow struct {
	ID         uuid.UUID           `db:"id"`
	Project    uuid.UUID           `db:"project_id,once"`
	SourceID   string              `db:"source_id,once"`
	Revision   int                 `db:"revision"`
	Captured   int                 `db:"captured"`
	Memories   int                 `db:"memories"`
	MemoryHead *int64              `db:"memory_head"` // after this stream revision only vectors may follow; nil: none
	Audience   uuid.UUID           `db:"audience"`
	OccurredAt time.Time           `db:"occurred_at"`
	Send       uuid.UUID           `db:"ingestion_id"`
	AcceptedAt time.Time           `db:"accepted_at"`
	Position   eventstore.Position `db:"position"`
	Author     *string             `db:"author"`
	LabelKey   *string             `db:"label_key"`
	ranked

	derived *blob.Ref   // the blob of the memories still to be counted
	counted *scopeShare // what the stored row counts for, nil if there is none
	dirty   bool
}

var dataPoints = table.New[dataPointRow](Name, schema, "data_points")

// scopeShare is what a data point counts for in table scopes.
type scopeShare struct {
	scope    scope
	memories int
}

// scope is the key of a row of table scopes.
type scope struct{ project, audience uuid.UUID }

func (d *dataPointRow) share() *scopeShare {
	return &scopeShare{scope: scope{project: d.Project, audience: d.Audience}, memories: d.Memories}
}

// revision is a row of table revisions. Once there, it changes by a move alone.
type revision struct {
	revisionAudience
	Project      uuid.UUID `db:"project_id"`
	Node         uuid.UUID `db:"node_id"`
	Historic     bool      `db:"historic"`
	Content      []byte    `db:"content"` // nil if it is in ContentBlob
	ContentBlob  *blob.Ref `db:"content_blob"`
	Tokens       *int32    `db:"tokens"`
	Metadata     *string   `db:"metadata"`
	MetadataBlob *blob.Ref `db:"metadata_blob"`
	Label        *string   `db:"label"`
	Author       string    `db:"author,null"`
	OccurredAt   time.Time `db:"occurred_at"`
	Send         uuid.UUID `db:"ingestion_id"`
	AcceptedAt   time.Time `db:"accepted_at"`
}

// revisionAudience is what a move changes of a row of table revisions.
type revisionAudience struct {
	revisionKey
	Audience *uuid.UUID `db:"audience"` // nil if it is unknown
}

type revisionKey struct {
	DataPoint uuid.UUID `db:"data_point"`
	Number    int       `db:"number"`
}

var (
	revisions         = table.New[revision](Name, schema, "revisions")
	revisionAudiences = table.NewPart[revisionAudience](Name, schema, "revisions")
)

func newRevision(dataPoint uuid.UUID, e *datapoint.RevisionAccepted) *revision {
	r := &revision{
		revisionAudience: revisionAudience{revisionKey{dataPoint, e.Effect.Revision}, &e.Effect.Audience},
		Project:          e.ProjectID, Node: datapoint.NodeID(dataPoint, e.Effect.Revision), Historic: e.Historic(),
		ContentBlob: e.Content.Blob,
		Label:       e.Effect.Label, Author: e.Author, OccurredAt: pgarray.Instant(e.Effect.OccurredAt), Send: e.IngestionID,
		AcceptedAt: pgarray.Instant(e.AcceptedAt),
	}
	if e.Content.Blob == nil {
		r.Content, r.Tokens = []byte(e.Content.Inline), new(int32(recall.Tokens(e.Content.Inline)))
	}
	if m := e.Metadata; m != nil && m.Blob != nil {
		r.MetadataBlob = m.Blob
	} else if m != nil {
		r.Metadata = &m.Inline
	}
	return r
}

// batchItem is an item of a committed batch that is not fanned out. It is charged by its size if it
// creates a revision.
type batchItem struct {
	dataPoint uuid.UUID
	bytes     int64
}

// deletionRow is a row of table deletions.
type deletionRow struct {
	ID         uuid.UUID           `db:"id"`
	Project    uuid.UUID           `db:"project_id,once"`
	Send       uuid.UUID           `db:"ingestion_id,once,null"` // zero for a deletion by source ids
	AcceptedAt time.Time           `db:"accepted_at,once"`
	FannedOut  bool                `db:"fanned_out"`
	Cleaned    bool                `db:"cleaned"`
	Position   eventstore.Position `db:"position,once"`

	dirty bool
}

var deletions = table.New[deletionRow](Name, schema, "deletions")

// erasure is a row of table erasures.
type erasure struct {
	DataPoint uuid.UUID           `db:"data_point"`
	Project   uuid.UUID           `db:"project_id,once"`
	Deletion  uuid.UUID           `db:"deletion_id,once"`
	FactsKept bool                `db:"facts_kept"`
	Blobs     []string            `db:"blobs"` // never nil
	Position  eventstore.Position `db:"position,once"`

	dirty bool
}

var erasures = table.New[erasure](Name, schema, "erasures")
