package datapoints

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
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

// The phases that only a send has.
const (
	indexed        = "indexed"
	nothingChanged = "nothing-changed"
)

// The phases of a send, as queries return them.
const (
	PhaseQueued         = queued
	PhaseProcessing     = processing
	PhaseCaptured       = captured
	PhaseIndexed        = indexed
	PhaseFailed         = failed
	PhaseNothingChanged = nothingChanged
)

// sendWithoutItems is a row of table sends_without_items: what events of the send's own stream set.
type sendWithoutItems struct {
	ID         uuid.UUID  `db:"id"`
	Project    uuid.UUID  `db:"project_id,once"`
	FinalPhase string     `db:"final_phase"` // "", indexed or failed
	FinalAt    *time.Time `db:"final_at"`
	Code       *string    `db:"failure_code"` // of the final phase; table sends has it while the send is failed
	Message    *string    `db:"failure_message"`
	Round      int        `db:"round"`
	DeletedAt  *time.Time `db:"deleted_at"`
}

// send is a row of table sends. While only the send's own stream is known, its first part is a row of table
// sends_without_items.
type send struct {
	sendWithoutItems
	known      bool
	Request    uuid.UUID `db:"request_id,once"`
	AcceptedAt time.Time `db:"accepted_at,once"`
	Items      int       `db:"item_count,once"`
	Batch      bool      `db:"batch,once"`
	charges
	Month     string `db:"month,once"`
	FannedOut bool   `db:"fanned_out"`
	// SearchableAt is the time of the watermark that ended the send, nil if none did.
	SearchableAt *time.Time `db:"searchable_at"`

	counts

	// Derived from the fields above.
	Phase       string              `db:"phase"`
	SettledAt   *time.Time          `db:"settled_at"`
	FailureOpen bool                `db:"failure_open"`
	Position    eventstore.Position `db:"position"`

	before  readiness // what the stored row counts for
	charged charges   // what the stored row is charged
	stored  location
	dirty   bool
}

var (
	sends             = table.New[send](Name, schema, "sends")
	sendsWithoutItems = table.New[sendWithoutItems](Name, schema, "sends_without_items")
)

// location is the table that holds a send.
type location int

const (
	nowhere location = iota
	inSends
	inSendsWithoutItems
)

// counts are the items of a send by phase. An item that is not fanned out, or whose retained facts
// are still to come, is not counted.
type counts struct {
	Queued        int        `db:"queued"`
	Processing    int        `db:"processing"`
	Captured      int        `db:"captured"`
	Failed        int        `db:"failed"`
	OpenFailures  int        `db:"open_failures"`
	Unchanged     int        `db:"unchanged"`
	Deleted       int        `db:"deleted"`
	LastDeletedAt *time.Time `db:"last_deleted_at"`
}

// count adds an item to the counts (n = 1) or removes it (n = -1).
func (c *counts) count(i *item, n int) {
	switch {
	case i.Phase == erased:
	case i.keepsRevision():
		c.Unchanged += n
	case i.isDeleted():
		c.Deleted += n
		if at := i.DeletedAt; n > 0 && at != nil && (c.LastDeletedAt == nil || c.LastDeletedAt.Before(*at)) {
			c.LastDeletedAt = at
		}
	case i.Phase == queued:
		c.Queued += n
	case i.Phase == processing:
		c.Processing += n
	case i.Phase == captured:
		c.Captured += n
	case i.hasFailed():
		c.Failed += n
		if !i.Overtaken {
			c.OpenFailures += n
		}
	}
}

// derivePhase sets the phase of the send after an event.
//
// It depends only on what the retained facts of a data point hold too, so that a replay after an
// erasure yields the same row.
func (s *send) derivePhase(at eventstore.Position) {
	if !s.known {
		return
	}
	phase := s.Phase
	s.SettledAt, s.FailureOpen = nil, false
	switch {
	case s.Unchanged == s.Items:
		s.Phase, s.SettledAt = nothingChanged, &s.AcceptedAt
	case s.SearchableAt != nil:
		s.Phase, s.SettledAt = indexed, s.SearchableAt
	case s.FinalPhase == indexed:
		s.Phase, s.SettledAt = indexed, s.FinalAt
	case s.DeletedAt != nil:
		s.Phase, s.SettledAt = indexed, s.DeletedAt
	case !s.FannedOut && s.FinalPhase == failed: // its stage cannot be read
		s.Phase, s.SettledAt, s.FailureOpen = failed, s.FinalAt, true
	case !s.FannedOut:
		s.Phase = queued
	case s.Unchanged+s.Deleted == s.Items: // no item is left to wait for
		if s.Phase, s.SettledAt = indexed, s.LastDeletedAt; s.SettledAt == nil { // all items of its batch met deletions
			s.SettledAt = &s.AcceptedAt
		}
	case s.FinalPhase == failed:
		s.Phase, s.SettledAt, s.FailureOpen = failed, s.FinalAt, s.OpenFailures > 0
	case s.Processing+s.Captured+s.Failed+s.Unchanged+s.Deleted < s.Items:
		s.Phase = queued
	case s.Processing > 0:
		s.Phase = processing
	default:
		s.Phase = captured
	}
	if s.Phase != phase {
		s.Position = at
	}
}

// endedBy reports whether a watermark up to a position ends the send. It does not end a send with a
// deleted data point: a replay after the erasure learns of that item only from the retained facts,
// and would end the send at another time.
func (s *send) endedBy(upTo eventstore.Position) bool {
	return s.known && s.Phase == captured && s.Failed == 0 && s.Deleted == 0 && s.Position <= upTo
}

// setSearchableAt sets the time of the watermark from retained facts. Their writer knew the data
// point until its deletion; a replay without the data point may have missed that watermark or
// applied a later one.
func (s *send) setSearchableAt(since time.Time) {
	var at *time.Time
	if !since.IsZero() {
		since = pgarray.Instant(since)
		at = &since
	}
	if was := s.SearchableAt; at == was || at != nil && was != nil && at.Equal(*was) {
		return
	}
	s.SearchableAt, s.dirty = at, true
}

// charges is what a send is charged for: items, their bytes, and tenths of credits.
type charges struct {
	Ingestions   int64 `db:"ingestions"`
	Bytes        int64 `db:"bytes"`
	CreditTenths int64 `db:"credit_tenths"`
}

// charge adds an item.
func (c *charges) charge(bytes, creditTenths int64) {
	c.Ingestions++
	c.Bytes += bytes
	c.CreditTenths += creditTenths
}

// setFinalPhase sets the phase that an event of the send's own stream decides; "" after a retry.
func (s *send) setFinalPhase(phase string, at time.Time) {
	s.FinalPhase, s.FinalAt, s.Code, s.Message, s.dirty = phase, &at, nil, nil, true
}

// readiness is what a send counts for in the counters of its project.
type readiness struct{ raw, comprehension, failed int64 }

func (s *send) readiness() readiness {
	switch {
	case !s.known:
		return readiness{}
	case s.Phase == queued:
		return readiness{raw: 1}
	case s.Phase == processing, s.Phase == captured:
		return readiness{comprehension: 1}
	case s.Phase == failed && s.FailureOpen:
		return readiness{failed: 1}
	default:
		return readiness{}
	}
}

func (r *readiness) add(o readiness, n int64) {
	r.raw += n * o.raw
	r.comprehension += n * o.comprehension
	r.failed += n * o.failed
}

// ranked is what recall ranks a data point by, of its newest revision. It is in the row that recall looks up anyway, so
// that recall reads no text of what it does not show. It depends on the analysis of recall: raise the version of the
// projection with that.
type ranked struct {
	Label *string `db:"label"`
	// Size and MetadataSize are in bytes. ContentBlob is where the content is, nil if it is with the revision; Tokens is
	// nil of one in a blob, which is not counted here.
	Size         int64     `db:"size"`
	MetadataSize int64     `db:"metadata_size"`
	ContentBlob  *blob.Ref `db:"content_blob"`
	Tokens       *int32    `db:"tokens"`
	// Traits and what the content states are those of a short content, 0 of another.
	Traits int16 `db:"traits"`
	Stems  int64 `db:"stems"`
	Exact  int64 `db:"exact"`
	// Outline shows whether a short content can be on the same thing as another one.
	Outline int64 `db:"outline"`
	// Conversation is the key of the conversation that the metadata name, 0 for none.
	Conversation int64 `db:"conversation"`
}

// rankedOf returns what a revision is ranked by, with the tokens of its content.
func rankedOf(e *datapoint.RevisionAccepted, tokens *int32) ranked {
	r := ranked{
		Label: e.Effect.Label, Size: sizeOf(&e.Content), MetadataSize: sizeOf(e.Metadata), ContentBlob: e.Content.Blob,
		Tokens: tokens,
	}
	if text := e.Content.Inline; r.ContentBlob == nil && len(text) <= recall.StatedText {
		states, outline := recall.Shared().States(text)
		r.Traits, r.Stems, r.Exact = int16(recall.TraitsOf(text)), int64(states.Stems), int64(states.Exact)
		r.Outline = int64(outline)
	}
	if e.Metadata != nil && e.Metadata.Blob == nil {
		r.Conversation = int64(recall.ConversationOf([]byte(e.Metadata.Inline)))
	}
	return r
}

// sizeOf returns the bytes of a text, 0 of none.
func sizeOf(t *datapoint.Text) int64 {
	switch {
	case t == nil:
		return 0
	case t.Blob != nil:
		return t.Blob.Size
	default:
		return int64(len(t.Inline))
	}
}
